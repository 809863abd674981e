"""Weights the text of each row by its reward, for the pathway weighted_sft (docs/maths.md, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.decision.losses import advantage_weights, reward_weights, total_reward
from prism_jax.prompting.supervised import supervised_step
from prism_jax.prompting.template import Template
from prism_jax.streams import Stream
from prism_jax.training.pathways.curated import rows_of
from prism_jax.training.pathways.table import PathwayConfig


class Weights(NamedTuple):
    """Weights of text."""

    # weight of each candidate's text, 1 where it has none; the mean over the rows with text is 1
    factor: Float[np.ndarray, " n"]
    facts: dict[str, str]  # effective sample size of the weights, for the start-up report


def weigh(streams: Sequence[Stream], pathway: PathwayConfig, template: Template) -> Weights:
    """Weights the text of each candidate, in order, in proportion to exp(R_total / beta).

    A row has text if it has a response or its step's branch is slow (docs/maths.md, section 6).

    Raises:
      ValueError: if no row has text.
    """
    rows = rows_of(streams)
    steps = [(supervised_step(step), offer) for stream in streams for step in stream.steps for offer in step.candidates]
    tokens = np.array(
        [0 if offer.response is None else len(template.response(offer.response)[1]) for _, offer in steps]
    )
    text = (tokens > 0) | np.array([step.slow for step, _ in steps])
    if not text.any():
        raise ValueError("data: found no response and no slow branch, expected some text for weighted_sft to weight")
    costs = {"c_fa": pathway.rejected_cost, "c_tok": pathway.token_cost}
    reward = np.asarray(total_reward(rows.score(pathway.score), rows.seen, rows.y_accept, tokens, **costs))[text]
    weights = (
        advantage_weights(reward, _mean_of_domain(reward, rows.domain[text]), pathway.beta)
        if pathway.advantage
        else reward_weights(reward, pathway.beta)
    )
    factor = np.ones(len(text))
    factor[text] = np.asarray(weights.weight)
    fact = f"effective sample size {float(weights.effective_sample_size):,.0f} of {text.sum():,} rows with text"
    return Weights(factor, {"weights": fact})


def _mean_of_domain(reward: Float[np.ndarray, " n"], domain: np.ndarray) -> Float[np.ndarray, " n"]:
    """Returns the baseline V of each row: the mean reward of its domain."""
    _, index = np.unique(domain, return_inverse=True)
    return (np.bincount(index, reward) / np.bincount(index))[index]
