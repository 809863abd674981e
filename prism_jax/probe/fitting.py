"""Fits a probe: regressions on words and on states, and the maps from their nested predictions to probabilities.

    acceptance   p = σ(a + b · mean of the log-odds of words and of states)
    need         p = σ(mean of the log-odds of a Platt map of the step's largest acceptance, and of words)

The maps are fitted on predictions of training streams by regressions that did not see them, and on the labels
themselves, of which shares of votes, which the regressions may be trained on, are not the mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy import special

from prism_jax.probe.config import FitConfig, StatesConfig
from prism_jax.probe.labels import Labels, accept_labels, joined, need_labels
from prism_jax.probe.logistic import Linear, Platt, fit, fit_platt
from prism_jax.probe.ngrams import Idf
from prism_jax.probe.states_fit import fit_states
from prism_jax.probe.words import Described


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
    """A stream as a probe sees it.

    Attributes:
      words: Its words.
      states: [offers, width] states of a frozen model; None for a probe on words alone.
    """

    words: Described
    states: Float[np.ndarray, "offers width"] | None = None


@dataclasses.dataclass(frozen=True)
class Regressions:
    """The regressions of a probe.

    Attributes:
      idf: Weights of the n-grams.
      accept: From `words.ACCEPT_COLUMNS` to acceptance.
      need: From `words.NEED_COLUMNS` to need.
      states: From states to acceptance; None for a probe on words alone.
    """

    idf: Idf
    accept: Linear
    need: Linear
    states: Linear | None = None

    def accept_log_odds(self, seen: Seen) -> Float[np.ndarray, " offers"]:
        """The mean of the log-odds from words and from states; those from words alone without states.

        Raises:
          ValueError: for a stream with states and a probe without, or the reverse.
        """
        if (self.states is None) != (seen.states is None):
            raise ValueError(
                f"stream {seen.words.stream.id!r}: found {'no ' * (seen.states is None)}states of a model, expected "
                f"{'none' if self.states is None else 'them'}, as in the training of the probe"
            )
        words = self.accept.log_odds(seen.words.accept_columns(self.idf))
        if self.states is None or seen.states is None:
            return words
        return (words + self.states.log_odds(seen.states)) / 2

    def need_log_odds(self, seen: Seen) -> Float[np.ndarray, " steps"]:
        """The log-odds of need from words."""
        return self.need.log_odds(seen.words.need_columns(self.idf))


@dataclasses.dataclass(frozen=True)
class Probe:
    """A fitted probe.

    Attributes:
      regressions: Its regressions, fitted on all training streams.
      accept: Map of the log-odds of acceptance.
      need: Map from a step's largest log-odds of acceptance, before `accept`, to log-odds of need.
    """

    regressions: Regressions
    accept: Platt
    need: Platt

    def predict(self, seen: Seen) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " offers"]]:
        """Computes p_need of each step and p_accept of each offer of a stream, in order.

        Raises:
          ValueError: as `Regressions.accept_log_odds`.
        """
        z = self.regressions.accept_log_odds(seen)
        from_offers = self.need(seen.words.largest(z))
        need = (from_offers + self.regressions.need_log_odds(seen)) / 2
        return special.expit(need), special.expit(self.accept(z))


def fit_probe(streams: Sequence[Seen], config: FitConfig, states: StatesConfig) -> Probe:
    """Fits a probe.

    Args:
      streams: Training streams with their labels, at least two.
      config: How it is fitted.
      states: Components and ridge of the regression on states.

    Raises:
      ValueError: naming the signal, if there are fewer than two streams, or its labels are all alike.
    """
    if len(streams) < 2:
        raise ValueError(f"training streams: found {len(streams)}, expected at least two")
    ordered = sorted(streams, key=lambda one: one.words.stream.id)
    folds = [ordered[number :: config.inner] for number in range(min(config.inner, len(ordered)))]
    held, accept = [], []
    for fold in folds:
        inside = {one.words.stream.id for one in fold}
        fitted = fit_regressions([one for one in ordered if one.words.stream.id not in inside], config, states)
        held += fold
        accept += [fitted.accept_log_odds(one) for one in fold]
    of_offer = joined([accept_labels(one.words.stream, votes=False) for one in held])
    of_step = joined([need_labels(one.words.stream) for one in held])
    largest = np.concatenate([one.words.largest(z) for one, z in zip(held, accept, strict=True)])
    return Probe(
        fit_regressions(ordered, config, states),
        _platt(np.concatenate(accept), *of_offer),
        _platt(largest, *of_step),
    )


def fit_regressions(streams: Sequence[Seen], config: FitConfig, states: StatesConfig) -> Regressions:
    """Fits the regressions alone, on all the given streams; arguments and errors are those of `fit_probe`."""
    idf = Idf.fit(one.words.counted for one in streams)
    words = [one.words for one in streams]
    accept = _Known.of("accept", words, [accept_labels(one.stream, votes=config.votes) for one in words])
    need = _Known.of("need", words, [need_labels(one.stream) for one in words])
    columns = [one.states for one in streams if one.states is not None]
    return Regressions(
        idf,
        accept.fit([one.accept_columns(idf) for one in words], partial(fit, ridge=config.ridge)),
        need.fit([one.need_columns(idf) for one in words], partial(fit, ridge=config.ridge)),
        accept.fit(columns, partial(fit_states, config=states)) if columns else None,
    )


class _Known(NamedTuple):
    """The rows of one signal whose label is known: which they are, their labels, and the stream of each."""

    signal: str
    known: Bool[np.ndarray, " rows"]
    labels: Labels
    stream: Shaped[np.ndarray, " known"]

    @classmethod
    def of(cls, signal: str, words: Sequence[Described], labels: Sequence[Labels]) -> _Known:
        every = joined(labels)
        known = ~np.isnan(every.y)
        stream = np.repeat([one.stream.id for one in words], [len(one.y) for one in labels])
        return cls(signal, known, Labels(*(column[known] for column in every)), stream[known])

    def fit(self, columns: Sequence[Float[np.ndarray, "_ d"]], how: Callable[..., Linear]) -> Linear:
        try:
            return how(np.concatenate(columns)[self.known], *self.labels, self.stream)
        except ValueError as error:
            raise ValueError(f"y_{self.signal}: {error}") from error


def _platt(z: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> Platt:
    """The Platt map on the rows whose label is known."""
    known = ~np.isnan(y)
    return fit_platt(z[known], y[known], weight[known])
