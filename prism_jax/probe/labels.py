"""Labels and weights of offers and steps, as a probe is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from prism_jax.streams import Candidate, Stream

LEAST_PROPENSITY = 0.05
"""Propensities below this count as this (docs/maths.md, section 4)."""


class Labels(NamedTuple):
    """Labels with their weights; NaN is an unknown label."""

    y: Float[np.ndarray, " n"]  # in [0, 1]
    weight: Float[np.ndarray, " n"]  # 1 where nothing was logged


def accept_labels(stream: Stream, *, votes: bool) -> Labels:
    """Labels of the stream's offers, in the order of its steps.

    With `votes`, the share of annotators who would accept takes the place of the label, where there are votes.
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


def given_accept(
    need: Labels, accept: Labels, top: Bool[np.ndarray, " offers"], step: Int[np.ndarray, " offers"]
) -> Labels:
    """Need labels of the steps whose offer was accepted, each with the weight of that acceptance.

    A step's offer is the one that would be made, which `top` marks; an unknown label counts as not accepted. Several
    that are equally likely to be accepted count by their mean acceptance, as in the training of a student
    (docs/maths.md, section 4). `step` is the number of each offer's step.
    """
    accepted = np.nan_to_num(accept.y * accept.weight) * top
    total, count = (np.bincount(step, values, minlength=len(need.y)) for values in (accepted, top))
    weight = need.weight * total / np.maximum(count, 1)
    return Labels(np.where(weight > 0, need.y, np.nan), weight)


def joined(labels: Sequence[Labels]) -> Labels:
    """The labels of several streams, one after the other."""
    return Labels(*(np.concatenate(column) for column in zip(*labels, strict=True)))


def _label(offer: Candidate, votes: bool) -> float:
    if offer.y_accept is None:
        return np.nan
    return sum(offer.votes) / len(offer.votes) if votes and offer.votes else offer.y_accept
