"""One forward pass over whole sequences: the oracle of what caches and decoders compute piece by piece."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.student.attention import no_branches

QUICK = {"xla_backend_optimization_level": 0}
"""For programs that take longer to compile than to run."""
quick_jit = functools.partial(jax.jit, compiler_options=QUICK)


def all_logits(model, params, tokens, **options):
    """The logits after every token of causal sequences, one per row."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    return model.logits(params, model.hidden(params, tokens, positions, no_branches(*tokens.shape), **options))


_all_logits = jax.jit(all_logits, static_argnums=0)


def next_logits(model, params, ids, room):
    """The logits after `ids`, padded to `room` tokens, so that one shape compiles once; what is right is not seen."""
    tokens = np.array([ids + [0] * (room - len(ids))], np.int32)
    return np.array(_all_logits(model, params, tokens))[0, len(ids) - 1]


def trunk(template, events):
    """The ids of the system message and of events."""
    ids = template.system()
    for before, event in zip((None, *events), events, strict=False):
        ids += template.event(event, before)
    return ids
