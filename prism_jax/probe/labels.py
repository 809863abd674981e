"""Labels and weights of offers and steps, as a probe is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.streams import Candidate, Stream

LEAST_PROPENSITY = 0.05
"""Propensities below this count as this (docs/maths.md, section 4)."""


class Labels(NamedTuple):
    """Labels with their weights; NaN is an unknown label.

    Attributes:
      y: Labels in [0, 1].
      weight: Weights; 1 where nothing was logged.
    """

    y: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]


def accept_labels(stream: Stream, *, votes: bool) -> Labels:
    """Labels of the stream's offers, in the order of its steps.

    Args:
      stream: The stream.
      votes: Whether the share of annotators who would accept takes the place of the label, where there are votes.
    """
    offers = [offer for step in stream.steps for offer in step.candidates]
    return Labels(
        np.array([_label(offer, votes) for offer in offers], float),
        np.array([1 / max(offer.propensity or 1.0, LEAST_PROPENSITY) for offer in offers], float),
    )


def need_labels(stream: Stream) -> Labels:
    """Need labels of the stream's steps."""
    y = np.array([np.nan if step.y_need is None else step.y_need for step in stream.steps], float)
    return Labels(y, np.ones(len(y)))


def joined(labels: Sequence[Labels]) -> Labels:
    """The labels of several streams, one after the other."""
    return Labels(*(np.concatenate(column) for column in zip(*labels, strict=True)))


def _label(offer: Candidate, votes: bool) -> float:
    if offer.y_accept is None:
        return np.nan
    return sum(offer.votes) / len(offer.votes) if votes and offer.votes else offer.y_accept
