"""Streams with a teacher, the supervision of each pathway, and a student whose hidden states are given."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import tiny
from tiny_step import RUN, stacked

from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.simulator import simulate
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.input_pipeline import pack_split
from prism_jax.training.pathway_config import SECOND_STAGES, PathwayConfig
from prism_jax.training.pathways.supervision import supervise
from prism_jax.training.run_config import PackingConfig

TEMPLATE = RUN.template
SIMULATOR = dataclasses.replace(tiny.CONFIG.simulator, teacher=True, teacher_blur=1.0)
STREAMS = tuple(simulate(SIMULATOR, index) for index in range(12))
WIDTH = 8


def each_step(streams, change):
    """Returns the streams with `change` applied to every step."""
    return tuple(map_steps(stream, change) for stream in streams)


def each_candidate(streams, change):
    """Returns the streams with `change` applied to every candidate."""
    return tuple(map_candidates(stream, change) for stream in streams)


class Given(Qwen3):
    """A student that consists of its head only: the hidden states of the branches are parameters."""

    def branch_hidden(self, params, *_):
        return params["hidden"]

    def abstract_params(self):
        shape = (self.config.vocab_size, WIDTH)
        return dict.fromkeys(("embedding", "hidden"), jax.ShapeDtypeStruct(shape, jnp.float32))


def config(loss=tiny.CONFIG.loss, **pathway):
    """Returns the config of the tiny run with another pathway."""
    chosen = PathwayConfig(**pathway)
    training = dataclasses.replace(tiny.CONFIG.training, start="a run" if chosen.name in SECOND_STAGES else "")
    return dataclasses.replace(tiny.CONFIG, loss=loss, pathway=chosen, training=training)


def supervised(streams=STREAMS, **pathway):
    """Returns the supervision of a pathway for the streams."""
    return supervise(streams, config(**pathway), TEMPLATE)


@dataclasses.dataclass(frozen=True)
class Example:
    """Supervised streams as one batch, and a student with given hidden states."""

    batch: object
    slots: Slots
    params: dict

    @classmethod
    def of(cls, streams):
        split = pack_split(streams, TEMPLATE, PackingConfig(512))
        batch = stacked(split.rows)
        model = Given(dataclasses.replace(RUN.model.config, hidden_dim=WIDTH))
        rng = np.random.default_rng(0)
        params = {
            "embedding": rng.normal(size=(model.config.vocab_size, WIDTH)).astype(np.float32),
            "hidden": rng.normal(size=(*batch.tokens.shape, WIDTH)).astype(np.float32),
        }
        return cls(batch, Slots(model, TEMPLATE.yes, TEMPLATE.no, split.size.window), params)

    def logits(self, slots):
        """Returns the logits z of the slots of one kind, per row, in float64."""
        embedding, hidden = (np.asarray(self.params[name], np.float64) for name in ("embedding", "hidden"))
        states = np.take_along_axis(hidden, np.asarray(slots)[..., None], axis=1)
        return states @ (embedding[TEMPLATE.yes] - embedding[TEMPLATE.no])

    def log_probs(self):
        """Returns the log-probabilities of the vocabulary wherever a supervised token is predicted, per row."""
        embedding, hidden = (np.asarray(self.params[name], np.float64) for name in ("embedding", "hidden"))
        logits = np.take_along_axis(hidden, np.asarray(self.batch.response_source)[..., None], axis=1) @ embedding.T
        return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
