"""After which block of a frozen language model is the answer slot worth most? Chosen on training streams alone.

The student reads z_yes - z_no off the state at the answer slot of an offer. For each block of a fixed list, a
regression on this state, after that block, predicts acceptance. Inner folds of whole streams measure how well it ranks
the offers within streams that it did not see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy import special

from prism_jax.experiments.nested_words import INNER, outer_folds
from prism_jax.experiments.ranking import MEASURES, Ranked, measures
from prism_jax.probe.fitting import accept_labels, joined
from prism_jax.probe.logistic import Linear, fit_states
from prism_jax.probe.probe_config import StatesConfig
from prism_jax.streams import Stream

States = Mapping[str, Float[np.ndarray, "_ _"]]
"""[offers, width] states of each stream, by its id."""


def worth_of_blocks(streams: Sequence[Stream], states: States, reading: StatesConfig) -> dict[int, float]:
    """Computes the AUROC of acceptance within streams, out of inner folds, for the answer slot after each block.

    `streams` are training streams with their labels. `states` are what `prism_jax.probe.kept_states` read of them at
    `reading.blocks`; other streams are not looked at.

    Raises:
      ValueError: if the training streams of an inner fold have labels of one kind only.
    """
    inner = outer_folds(streams, min(INNER, len(streams)))
    return {block: _worth(inner, _slots(streams, states, reading, block), reading) for block in reading.blocks}


def best_block(worth: Mapping[int, float]) -> int:
    """The block of the highest worth, the lowest such block if several are equal."""
    return max(sorted(worth), key=lambda block: worth[block])


def states_after(states: States, reading: StatesConfig, block: int) -> States:
    """The columns of one block: the mean over the offer's own tokens, and the answer slot."""
    place = reading.blocks.index(block)
    count = len(reading.blocks)
    return {name: np.split(columns, count, axis=1)[place] for name, columns in states.items()}


def _slots(streams: Sequence[Stream], states: States, reading: StatesConfig, block: int) -> States:
    """The answer slots alone."""
    own = states_after({stream.id: states[stream.id] for stream in streams}, reading, block)
    return {name: columns[:, columns.shape[1] // 2 :] for name, columns in own.items()}


def _worth(inner: Sequence[tuple[list[Stream], list[Stream]]], slots: States, reading: StatesConfig) -> float:
    """AUROC within streams of one block's slots, over the held streams of all inner folds."""
    names: list[str] = []
    log_odds, labels = [], []
    for train, held in inner:
        fitted = _fit(train, slots, reading)
        for stream in held:
            names.append(stream.id)
            log_odds.append(fitted.log_odds(slots[stream.id]))
            labels.append(accept_labels(stream, votes=False).y)
    z, y, owner = np.concatenate(log_odds), np.concatenate(labels), np.repeat(names, [len(part) for part in labels])
    known = ~np.isnan(y)
    ranked = Ranked(z[known], special.expit(z[known]), y[known], owner[known])
    return float(measures(ranked, names)(np.ones(len(names)))[MEASURES.index("auroc_within")])


def _fit(train: Sequence[Stream], slots: States, reading: StatesConfig) -> Linear:
    """The regression on the slots of some streams."""
    labels = joined([accept_labels(stream, votes=True) for stream in train])
    known = ~np.isnan(labels.y)
    x = np.concatenate([slots[stream.id] for stream in train])
    owner = np.repeat([stream.id for stream in train], [len(slots[stream.id]) for stream in train])
    return fit_states(x[known], labels.y[known], labels.weight[known], owner[known], reading)
