"""Texts that the decoder writes after prompts, one per row."""

import functools

import jax
import numpy as np

from prism_jax.student.constrained import DeviceAutomaton, Span, make_automaton, room, write_spans
from prism_jax.student.kv_cache import LayerCache, Segment, grow, read_prompts, unstack_layers
from prism_jax.student.start import Start

read = functools.partial(jax.jit, static_argnums=0)(read_prompts)


def after(model, unstacked, prompts, space):
    """The start after prompts of at most 16 tokens, which are its trunks, with room for `space` more."""
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    tokens = np.zeros((len(prompts), 16), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    last, cache = read(model, unstacked, tokens, lengths)
    own = grow(tuple(LayerCache(keys[..., :0], values[:, :, :0]) for keys, values in cache), space)
    return Start(own, np.zeros_like(lengths), 0, model.logits(unstacked, last), Segment.first(cache, lengths))


def write(model, params, prompts, spans, automaton):
    """The free tokens of each row and span."""
    unstacked = unstack_layers(params)
    start = after(model, unstacked, [[*prompt, *spans[0].forced] for prompt in prompts], room(spans))
    return write_spans(model, unstacked, start, spans, DeviceAutomaton(automaton))


def any_token(vocabulary):
    """The automaton that allows every token."""
    return make_automaton(np.zeros((1, vocabulary), np.int8), np.full(vocabulary, -1), [True])


def generate(model, params, prompts, limit):
    """`limit` tokens after each prompt, without any constraint."""
    rows = write(model, params, prompts, [Span((), limit)], any_token(model.config.vocab_size))
    return [row[0] for row in rows]
