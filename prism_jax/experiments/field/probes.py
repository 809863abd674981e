"""The probe (`prism_jax.probe`): logistic regression on words, and on the states of a frozen language model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from prism_jax.experiments.field.interface import Baseline, Fold, Run, has_need, rows_of_streams
from prism_jax.probe.fitting import StreamInputs, fit_probe
from prism_jax.probe.kept_states import states_of
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.words import describe_all
from prism_jax.scores import Scores
from prism_jax.streams import Stream
from prism_jax.streams.edit import map_steps


def score_words(fold: Fold, run: Run) -> Scores:
    """The test streams by a probe on words; its maps are fitted on nested predictions of the training streams."""
    return _score(fold, StatesConfig(), run)


def score_given_accept(fold: Fold, run: Run) -> Scores:
    """The same, with p_need given that the offer is accepted, which the gate asks for (docs/maths.md, section 2)."""
    return _score(fold, StatesConfig(), run, FitConfig(need_target="given_accept"))


def score_states(fold: Fold, run: Run) -> Scores:
    """The same on words and on the states of the frozen model `run.weights`."""
    return _score(fold, StatesConfig(weights=run.weights or ""), run)


def _score(fold: Fold, config: StatesConfig, run: Run, how: FitConfig | None = None) -> Scores:
    need = has_need(fold.train)
    train = fold.train if need else [_with_acceptance_as_need(stream) for stream in fold.train]
    probe = fit_probe(_inputs(train, config, run), how or FitConfig(), config)
    predicted = [probe.predict(inputs) for inputs in _inputs(fold.test, config, run)]
    p_need, p_accept = ([p for own in column for p in own.tolist()] for column in zip(*predicted, strict=True))
    rows = rows_of_streams(
        fold.test, p_need if need else None, p_accept, split="test", fold=fold.number, calibrated=True
    )
    return Scores.from_rows(rows if how is None else (row | {"need_target": how.need_target} for row in rows))


def _inputs(streams: Sequence[Stream], config: StatesConfig, run: Run) -> list[StreamInputs]:
    described = describe_all(streams)
    if not config.weights:
        return [StreamInputs(words) for words in described]
    states = states_of(streams, config, run.cache / "states")
    return [StreamInputs(words, own) for words, own in zip(described, states, strict=True)]


def _with_acceptance_as_need(stream: Stream) -> Stream:
    """A stream without labels of need, which a probe is fitted on all the same; nobody reads its need then."""
    return map_steps(
        stream,
        lambda step: dataclasses.replace(
            step, y_need=max((offer.y_accept for offer in step.candidates if offer.y_accept is not None), default=None)
        ),
    )


WORDS = Baseline("words", "probe on words", score_words)
GIVEN_ACCEPT = Baseline(
    "words_given_accept",
    "probe on words, need given acceptance",
    score_given_accept,
    misfit=lambda source: "" if has_need(source.streams) else "no need",
)
STATES = Baseline("states", "probe on words and frozen states", score_states, needs=("weights",))
