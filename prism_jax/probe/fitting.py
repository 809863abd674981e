"""Fits a probe: regressions on words and on states, and the maps from their nested predictions to probabilities.

    acceptance   p = σ(a + b · mean of the log-odds of words and of states)
    need         p = σ(mean of the log-odds of a Platt map of the step's largest acceptance, and of words)

The maps are fitted on predictions of training streams by regressions that did not see them, and on the labels
themselves, of which shares of votes, which the regressions may be trained on, are not the mean. Need given acceptance
is fitted in the same way, on steps whose offer was accepted. These count by the share of votes for the offer in a
regression that is trained on such shares, and by the label of acceptance in the map.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int, Shaped

from prism_jax.decision.calibration import Platt
from prism_jax.probe.logistic import Linear, fit, fit_platt_with_ridge, fit_states
from prism_jax.probe.ngrams import Idf
from prism_jax.probe.probe_config import FitConfig, NeedTarget, StatesConfig
from prism_jax.probe.words import Described, Steps
from prism_jax.streams import Candidate, Stream
from prism_jax.streams.stream_columns import offer_rows

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


@dataclasses.dataclass(frozen=True, eq=False)
class StreamInputs:
    """What a probe reads of a stream."""

    words: Described
    states: Float[np.ndarray, "offers width"] | None = None  # of a frozen model; None for a probe on words alone


@dataclasses.dataclass(frozen=True)
class Acceptance:
    """The regressions of acceptance."""

    idf: Idf
    words: Linear  # from `words.ACCEPT_COLUMNS`
    states: Linear | None = None  # None for a probe on words alone

    def log_odds(self, words: Steps, states: Float[np.ndarray, "offers width"] | None) -> Float[np.ndarray, " offers"]:
        """The mean of the log-odds from words and from states; those from words alone without states.

        Raises ValueError for a stream with states and a probe without, or the reverse.
        """
        if (self.states is None) != (states is None):
            raise ValueError(
                f"stream {words.name!r}: found {'no ' * (states is None)}states of a model, expected "
                f"{'none' if self.states is None else 'them'}, as in the training of the probe"
            )
        from_words = self.words.log_odds(words.accept_columns(self.idf))
        if self.states is None or states is None:
            return from_words
        return (from_words + self.states.log_odds(states)) / 2


@dataclasses.dataclass(frozen=True)
class Probe:
    """A fitted probe."""

    acceptance: Acceptance  # fitted on all training streams
    words: Linear  # from `words.NEED_COLUMNS` to need
    accept: Platt  # map of the log-odds of acceptance
    need: Platt  # map from a step's largest log-odds of acceptance, before `accept`, to log-odds of need
    need_target: NeedTarget = "marginal"  # what p_need estimates

    def predict(self, inputs: StreamInputs) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " offers"]]:
        """Computes p_need of each step and p_accept of each offer of a stream, in order."""
        return self.signals(inputs.words, inputs.states)

    def signals(
        self, words: Steps, states: Float[np.ndarray, "offers width"] | None
    ) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " offers"]]:
        """`predict` of some steps alone, from what was read of them."""
        z = self.acceptance.log_odds(words, states)
        from_offers = self.need.of_log_odds(words.largest(z))
        from_words = self.words.log_odds(words.need_columns(self.acceptance.idf))
        return scipy.special.expit((from_offers + from_words) / 2), scipy.special.expit(self.accept.of_log_odds(z))


def fit_probe(streams: Sequence[StreamInputs], config: FitConfig, states: StatesConfig) -> Probe:
    """Fits a probe; `states` has the components and the ridge of the regression on states.

    Raises:
      ValueError: naming the signal, if there are fewer than two streams, or its labels are all alike.
    """
    if len(streams) < 2:
        raise ValueError(f"training streams: found {len(streams)}, expected at least two")
    ordered = sorted(streams, key=lambda seen: seen.words.stream.id)
    folds = [ordered[number :: config.inner] for number in range(min(config.inner, len(ordered)))]
    nested: dict[str, Float[np.ndarray, " offers"]] = {}  # log-odds of acceptance by regressions without the stream
    for fold in folds:
        inside = {seen.words.stream.id for seen in fold}
        fitted = fit_acceptance([seen for seen in ordered if seen.words.stream.id not in inside], config, states)
        nested |= {seen.words.stream.id: fitted.log_odds(seen.words, seen.states) for seen in fold}
    acceptance = fit_acceptance(ordered, config, states)
    held_out = [seen.words for fold in folds for seen in fold]
    z = [nested[described.stream.id] for described in held_out]
    words = [seen.words for seen in ordered]
    need = [_need_labels(described, nested[described.stream.id], config, votes=config.votes) for described in words]
    of_step = [_need_labels(described, own, config, votes=False) for described, own in zip(held_out, z, strict=True)]
    largest = [described.largest(own) for described, own in zip(held_out, z, strict=True)]
    signal = "y_need" if config.need_target == "marginal" else "y_need of accepted offers"
    return Probe(
        acceptance,
        _Labelled.of(signal, words, need).fit(
            [described.need_columns(acceptance.idf) for described in words], partial(fit, ridge=config.ridge)
        ),
        _platt("y_accept", z, [accept_labels(described.stream, votes=False) for described in held_out]),
        _platt(signal, largest, of_step),
        config.need_target,
    )


def fit_acceptance(streams: Sequence[StreamInputs], config: FitConfig, states: StatesConfig) -> Acceptance:
    """Fits the regressions of acceptance on all the given streams."""
    idf = Idf.fit(seen.words.counted for seen in streams)
    words = [seen.words for seen in streams]
    accept = _Labelled.of("y_accept", words, [accept_labels(each.stream, votes=config.votes) for each in words])
    columns = [seen.states for seen in streams if seen.states is not None]
    return Acceptance(
        idf,
        accept.fit([each.accept_columns(idf) for each in words], partial(fit, ridge=config.ridge)),
        accept.fit(columns, partial(fit_states, config=states)) if columns else None,
    )


def _need_labels(words: Described, z: Float[np.ndarray, " offers"], config: FitConfig, *, votes: bool) -> Labels:
    """Labels of need: of all steps, or of those whose offer of highest log-odds `z` was accepted.

    The log-odds are nested, so that the offer is chosen as it will be on a new stream.
    """
    need = need_labels(words.stream)
    if config.need_target == "marginal":
        return need
    top = z == words.largest(z)[words.step]
    return given_accept(need, accept_labels(words.stream, votes=votes), top, words.step)


class _Labelled(NamedTuple):
    """The rows of one signal whose label is known: which they are, their labels, and the stream of each."""

    signal: str
    known: Bool[np.ndarray, " rows"]
    labels: Labels
    stream: Shaped[np.ndarray, " known"]

    @classmethod
    def of(cls, signal: str, words: Sequence[Described], labels: Sequence[Labels]) -> _Labelled:
        every = joined(labels)
        known = ~np.isnan(every.y)
        stream = np.repeat([described.stream.id for described in words], [len(own.y) for own in labels])
        return cls(signal, known, Labels(*(column[known] for column in every)), stream[known])

    def fit(self, columns: Sequence[Float[np.ndarray, "_ d"]], how: Callable[..., Linear]) -> Linear:
        try:
            return how(np.concatenate(columns)[self.known], *self.labels, self.stream)
        except ValueError as error:
            raise ValueError(f"{self.signal}: {error}") from error


def _platt(signal: str, z: Sequence[Float[np.ndarray, " _"]], labels: Sequence[Labels]) -> Platt:
    """The Platt map on the rows whose label is known; raises ValueError if there is none."""
    y, weight = joined(labels)
    known = ~np.isnan(y)
    if not known.any():
        raise ValueError(f"{signal}: found no label on the training streams, expected some")
    return fit_platt_with_ridge(np.concatenate(z)[known], y[known], weight[known])


def score(probe: Probe, streams: Sequence[StreamInputs], *, split: str, fold: int) -> Iterator[dict[str, Any]]:
    """Yields one row per offer, with the columns that a student's fast pass has; no token is read to decide by words.

    The probe must not have been fitted on any of the streams.
    """
    # A table without the column means the unconditional need, as a student's does.
    target = {} if probe.need_target == "marginal" else {"need_target": probe.need_target}
    for seen in streams:
        p_need, p_accept = (p.tolist() for p in probe.predict(seen))
        for row in offer_rows(seen.words.stream, p_need, p_accept, split=split, fold=fold):
            yield row | target
