"""What a baseline is: it takes streams, or a log of answers, and gives a scores table, or decisions.

A baseline sees the labels of a fold's training part alone: test streams come without answers
(`prism_jax.streams.edit.without_answers`), answers of a log's test rows are NaN unless the baseline may see a person's
earlier ones (`Baseline.causal`), and whoever measures puts the labels back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float, Int

from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.scores import Scores
from prism_jax.streams import Stream

Takes = Literal["streams", "log"]
Needs = Literal["weights", "endpoint"]
Decisions = Mapping[tuple[str, int], int | None]
"""By stream and number of the step: the number of the candidate that is offered, None for silence."""


class Fold(NamedTuple):
    """Streams to fit on, and streams to score."""

    number: int
    train: Sequence[Stream]  # with their labels; empty for a baseline that is not fitted
    test: Sequence[Stream]  # without answers
    need: bool = True  # whether the source has labels of need; without them nobody reads a p_need


class Log(NamedTuple):
    """A log of answers, and what it says of each offer in words and numbers."""

    answers: AcceptanceLog
    texts: tuple[tuple[str, ...], ...]  # of each row: the same number of texts everywhere, which may be empty
    numbers: Float[np.ndarray, "rows columns"]  # of each row: what was known at the moment of the offer


class LogFold(NamedTuple):
    """Answers to fit on, and answers to predict."""

    number: int
    log: Log
    train: Int[np.ndarray, " train"]  # rows of whole people; empty for a baseline that is not fitted
    test: Int[np.ndarray, " test"]  # rows of other people


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of a run of the table, as far as baselines need them."""

    cache: epath.Path  # folder for what is worth keeping: states, answers of an endpoint
    weights: str | None = None  # a GGUF file or a model directory
    endpoint: EndpointConfig | None = None
    remote: RemoteConfig = dataclasses.field(default_factory=RemoteConfig)  # cache and budget of the endpoint
    seed: int = 0
    steps: int = 300  # number of steps that a prompted baseline takes (`sampled_steps`)
    checkout: str | None = None  # folder of ProactiveBench's repository with its agent's prompt; None takes ours


@dataclasses.dataclass(frozen=True)
class Baseline:
    """One row of the table.

    `score` gives rows of every offer that it scores in the fold's test part, with the split "test"; a step that it
    leaves out counts nowhere. If its probabilities are not calibrated (the column `calibrated`) and it is fitted, it
    also gives rows of the training part, with the split "calibration", by predictions that did not see their labels.
    No labels stand in these rows.
    `decide` takes C_FN / C_FA beside, and gives decisions about the test part in place of probabilities.
    """

    name: str  # what --baselines calls it
    label: str  # what the table calls it
    score: Callable[[Any, Run], Scores] | None = None  # of a `Fold` or a `LogFold`
    decide: Callable[[Fold, Run, float], Decisions] | None = None
    needs: tuple[Needs, ...] = ()
    takes: tuple[Takes, ...] = ("streams",)
    fitted: bool = True  # whether folds matter; otherwise it is called once, with everything as the test part
    causal: bool = False  # whether it sees the earlier answers of a log's test people, as a running rate must
    misfit: Callable[[Any], str] = lambda source: ""  # why it cannot take a `Material` of its kind; empty where it can
    about: str = "1"  # changed when it computes something else, so that kept scores are not taken for new ones

    def __post_init__(self) -> None:
        if (self.score is None) == (self.decide is None):
            raise ValueError(f"baseline {self.name!r}: found both or none of score and decide, expected one of them")

    @property
    def gives(self) -> Literal["probabilities", "decisions"]:
        """What it gives."""
        return "decisions" if self.score is None else "probabilities"


def sampled_steps(streams: Sequence[Stream], run: Run) -> list[tuple[int, int]]:
    """The steps that a prompted baseline takes, as (place of the stream, number of the step), in order.

    `run.steps` of them are drawn with `run.seed`, without replacement; all where there are not more.
    """
    places = [(place, number) for place, stream in enumerate(streams) for number in range(len(stream.steps))]
    drawn = np.random.default_rng(run.seed).permutation(len(places))[: run.steps]
    return [places[index] for index in sorted(drawn.tolist())]


def has_need(streams: Sequence[Stream]) -> bool:
    """Whether any step says whether help was needed; otherwise acceptance alone is scored."""
    return any(step.y_need is not None for stream in streams for step in stream.steps)


def rows_of_streams(
    streams: Sequence[Stream],
    p_need: Sequence[float] | None,
    p_accept: Sequence[float],
    *,
    split: str,
    fold: int,
    calibrated: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a scores table: `p_need` has one value per step, None without need; `p_accept` per offer."""
    need, accept = iter(p_need or ()), iter(p_accept)
    for stream in streams:
        columns = {"stream": stream.id, "domain": stream.domain, "split": split, "fold": fold}
        columns |= {"calibrated": True} if calibrated else {}
        for number, step in enumerate(stream.steps):
            signals = {} if p_need is None else {"p_need_fast": next(need)}
            for index in range(len(step.candidates)):
                yield {**columns, **signals, "step": number, "candidate": index, "p_accept_fast": next(accept)}
