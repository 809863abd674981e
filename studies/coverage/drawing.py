"""What is drawn: streams, logs and people whose truth is known.

Streams have very different lengths (log-normal), rates that differ (beta-binomial) and skewed costs; in the last three
populations a rare kind of stream is terrible, and a sample without any of them cannot know. Logs of offers have known
propensities. Some are made: their covariates are quantiles, so that a design is answered always or never, up to who has
which of its rows. Others are redrawn from a log in which every offer was answered, and the answers to offers that a
logging policy does not make are hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float64, Int, Int64

from prism_jax.decision import person as person_layer
from prism_jax.decision.off_policy import Logged
from prism_jax.decision.uncertainty import SHARE, UNBOUNDED, Bounds

C_FA, C_FN = 1.0, 2.0
HABIT = 0.6
"""How far people's acceptance lies from that of a made log's rows, at most, in shares of the distance to 0 or 1."""
RARE = 0.05
"""Share of the rare rows or people."""
HIDDEN = 0.008
"""Share of the rows whose offer could never be made."""
_TRUTH_STREAMS = 400_000

Steps = Int64[np.ndarray, " streams"]
Streams = Float64[np.ndarray, "streams cells"]
Rows = Float64[np.ndarray, " rows"]


class Population(NamedTuple):
    """Streams to draw, and what is estimated from them."""

    cells: Callable[[np.random.Generator, Steps], tuple[np.ndarray, ...]]  # draws those of streams of these lengths
    statistic: Callable[[np.ndarray], np.ndarray]  # the number that is estimated, of totals of the cells
    bounds: Bounds  # its smallest and largest value

    def draw(self, rng: np.random.Generator, streams: int) -> Streams:
        """So many streams; their lengths have a median of 10 and a coefficient of variation of about 1.1."""
        steps = np.maximum(1, np.round(np.exp(rng.normal(np.log(10), 0.9, streams)))).astype(np.int64)
        return np.stack(self.cells(rng, steps), axis=1).astype(float)

    @property
    def truth(self) -> float:
        """The value over very many streams."""
        return float(self.statistic(self.draw(np.random.default_rng(99), _TRUTH_STREAMS).sum(axis=0)))


def _happen(rng: np.random.Generator, steps: Steps, mean: float, correlation: float) -> Steps:
    """At how many steps it happens, at rates of streams whose answers have this correlation within a stream."""
    total = 1 / correlation - 1
    return rng.binomial(steps, rng.beta(mean * total, (1 - mean) * total, len(steps)))


def _ratio(totals: np.ndarray) -> np.ndarray:
    return np.asarray(totals[..., 0] / totals[..., 1])


def _rate(mean: float, correlation: float) -> Population:
    return Population(lambda rng, steps: (_happen(rng, steps, mean, correlation), steps), _ratio, SHARE)


def _of_confusion(
    statistic: Callable[..., np.ndarray], bounds: Bounds = SHARE, prevalence: float = 0.3, correlation: float = 0.15
) -> Population:
    """A statistic of tn, fp, fn and tp: a recall of 0.8 and a false positive rate of 0.2 that differ as well."""

    def cells(rng: np.random.Generator, steps: Steps) -> tuple[np.ndarray, ...]:
        positive = _happen(rng, steps, prevalence, correlation)
        tp, fp = _happen(rng, positive, 0.8, 0.1), _happen(rng, steps - positive, 0.2, 0.15)
        return steps - positive - fp, fp, positive - tp, tp

    return Population(cells, lambda totals: np.asarray(statistic(*np.moveaxis(totals, -1, 0))), bounds)


def _cost(c_fn: float, **given: float) -> Population:
    return _of_confusion(lambda tn, fp, fn, tp: (fp + c_fn * fn) / (tn + fp + fn + tp), Bounds(0.0, c_fn), **given)


def _difference(share: float, loss: int) -> Population:
    """Costs of one policy minus another's: 1 more at a share of the steps, `loss` less at a share that evens it out."""

    def cells(rng: np.random.Generator, steps: Steps) -> tuple[np.ndarray, ...]:
        habit = np.exp(rng.normal(-0.32, 0.8, (2, len(steps))))
        more, less = rng.binomial(steps, np.minimum(habit * np.array([[share], [share / loss]]), 0.5))
        return more - loss * less, steps

    return Population(cells, _ratio, UNBOUNDED)


def _rare(share: float, rate: float, longer: int, bounds: Bounds) -> Population:
    """A rare kind of stream, so many times longer, with 1 at a share of its steps; in a difference, others even it."""
    other = rate * share / (1 - share) if bounds is UNBOUNDED else 0.0

    def cells(rng: np.random.Generator, steps: Steps) -> tuple[np.ndarray, ...]:
        rare = rng.random(len(steps)) < share
        steps = np.where(rare, longer * steps, steps)
        change = rng.binomial(steps, np.where(rare, rate, other))
        return np.where(rare, change, -change), steps

    return Population(cells, _ratio, bounds)


POPULATIONS: dict[str, Population] = {
    "rate of 0.5": _rate(0.5, 0.2),
    "rate of 0.9": _rate(0.9, 0.2),
    "rate of 0.97": _rate(0.97, 0.1),
    "rate of 0.1, streams of mostly one kind": _rate(0.1, 0.5),
    "precision": _of_confusion(lambda tn, fp, fn, tp: tp / (tp + fp)),
    "F1": _of_confusion(lambda tn, fp, fn, tp: 2 * tp / (2 * tp + fp + fn)),
    "cost, C_FN = 2": _cost(2.0),
    "cost, C_FN = 8, rare need": _cost(8.0, prevalence=0.08, correlation=0.3),
    "difference, symmetric": _difference(0.1, 1),
    "difference, skewed": _difference(0.06, 2),
    "difference, 15 % of the streams are terrible": _rare(0.15, 0.9, 1, UNBOUNDED),
    "difference, 5 % of the streams are terrible": _rare(0.05, 0.9, 1, UNBOUNDED),
    "rate of 0.36, all in 8 % of the streams": _rare(0.08, 0.5, 30, SHARE),
}


def _rarely(x: float, by: Rows) -> tuple[Rows, Rows]:
    return np.where(by < RARE, x, 0.9), np.where(by < RARE, 0.1, 0.7)


class Design(NamedTuple):
    """A logging policy, a target policy and the people of a log."""

    kind: str  # one of `KINDS`
    value: float  # the number that `KINDS` calls x
    people: int
    rows: int  # mean number of rows per person
    # whether people have equal numbers of rows, log-normal ones (sigma = 1), or one person has half of all
    sizes: Literal["equal", "unequal", "one has half"] = "equal"
    # whether the target offers everywhere, or only where fewer than half of the offers would be accepted
    target: Literal["always", "disliked"] = "always"

    def __str__(self) -> str:
        sizes = "" if self.sizes == "equal" else f", {self.sizes}"
        return f"x = {self.value:g}, {self.people} people of {self.rows} rows{sizes}, target {self.target}"


KINDS: dict[str, tuple[str, Callable[[float, Rows], tuple[Rows | float, Rows | float]]]] = {
    "rare rows": ("e = x at 5 % of rows, where 10 % of offers would be accepted, else 0.9 and 70 %", _rarely),
    "rare people": ("the same, by people", _rarely),
    "rare answers": ("e = 0.2; acceptance x", lambda x, by: (0.2, x)),
    "beta": ("e ~ Beta(x, 1); acceptance 0.2 + 0.6 e", lambda x, by: (by ** (1 / x), 0.2 + 0.6 * by ** (1 / x))),
    "constant": ("e = x; acceptance 70 %", lambda x, by: (x, 0.7)),
    "explores": (
        "a gate that takes the other decision with probability x; acceptance 30 % where it is silent, or 70 %",
        lambda x, by: (np.where(by < 0.5, x, 1 - x), np.where(by < 0.5, 0.3, 0.7)),
    ),
    "linear": (
        "e from x to 1 - x, acceptance from 20 to 80 %, both linear in a covariate",
        lambda x, by: (x + (1 - 2 * x) * by, 0.2 + 0.6 * by),
    ),
    "hidden": (
        "e = 0 at 0.8 % of rows, else 0.5; acceptance x there, else 50 %",
        lambda x, by: (np.where(by < HIDDEN, 0.0, 0.5), np.where(by < HIDDEN, x, 0.5)),
    ),
}
"""Kinds of made logs: in words, and propensity and acceptance by x and a covariate between 0 and 1."""
DESIGNS = (
    *(Design("rare rows", e, 200, 12) for e in (0.002, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)),
    *(Design("rare rows", e, 200, 60) for e in (0.02, 0.05, 0.1)),
    *(Design("rare rows", 0.4, 30, 60, sizes) for sizes in ("equal", "unequal")),
    *(Design("rare people", e, 200, 40) for e in (0.02, 0.1, 0.3)),
    Design("rare answers", 0.01, 100, 12),
    *(Design("beta", a, 200, 12) for a in (0.3, 0.5, 1.0, 2.0, 3.0, 4.0)),
    *(Design("constant", e, 200, 12) for e in (0.01, 0.02, 0.05)),
    Design("constant", 0.3, 8, 30),
    *(Design("explores", e, 20, 60) for e in (0.02, 0.1, 0.2)),
    *(Design("explores", e, 20, 60, target="disliked") for e in (0.02, 0.1, 0.2)),
    *(Design("linear", 0.1, people, 100) for people in (2, 4, 8, 20)),
    *(Design("linear", 0.1, people, 100, "unequal") for people in (8, 15, 40)),
    Design("linear", 0.1, 50, 100, "one has half"),
    *(Design("hidden", accepted, 200, 200) for accepted in (0.02, 0.98)),
)


class Drawn(NamedTuple):
    """One log as an estimate sees it."""

    target: Rows  # pi, the probability that the target policy makes each offer
    logged: Logged  # what the log knows
    person: Int[np.ndarray, " rows"]  # person of each row, numbers from 0 without gaps
    features: Float64[np.ndarray, "rows features"]  # what the model of the doubly robust estimate reads


class Logs(NamedTuple):
    """Logs to draw, and what the target policy would have changed: the difference of the mean cost per row."""

    draw: Callable[[np.random.Generator], Drawn]
    truth: float


def made_logs(design: Design) -> Logs:
    """Logs of a design."""
    person = np.repeat(np.arange(design.people), _sizes(design))

    def policies(rng: np.random.Generator) -> tuple[Rows, Rows, Rows]:
        """e, acceptance and pi of every row."""
        e, accepted = rows_of(design, person, rng)
        target = np.ones(len(e)) if design.target == "always" else (accepted < 0.5).astype(np.float64)
        return e, accepted, target

    def draw(rng: np.random.Generator) -> Drawn:
        e, accepted, target = policies(rng)
        habit = rng.uniform(-HABIT, HABIT, design.people)[person]
        y = rng.random(len(e)) < accepted + habit * np.minimum(accepted, 1 - accepted)
        return Drawn(target, _logged(rng, e, y), person, np.column_stack([accepted, e]))

    e, accepted, target = policies(np.random.default_rng(0))
    return Logs(draw, _change(e, accepted, target))


def redrawn_logs(
    person: Int[np.ndarray, " rows"], accepted: Rows, rank: Rows, logging: Rows, target: Rows, people: int
) -> Logs:
    """Logs of so many people of a log in which every offer was answered, and whose scores have this rank in (0, 1).

    The policies make each of its offers with these probabilities.
    """
    rows_by_person = [np.flatnonzero(person == each) for each in range(int(person.max()) + 1)]

    def draw(rng: np.random.Generator) -> Drawn:
        drawn = [rows_by_person[each] for each in rng.integers(0, len(rows_by_person), people)]
        rows, redrawn = np.concatenate(drawn), np.repeat(np.arange(people), [len(own) for own in drawn])
        logged = _logged(rng, logging[rows], accepted[rows])
        return Drawn(target[rows], logged, redrawn, np.column_stack([rank[rows], rank[rows] ** 2]))

    return Logs(draw, _change(logging, accepted, target))


def _logged(rng: np.random.Generator, e: Rows, y: np.ndarray) -> Logged:
    """What a log knows whose offers are made with probability e."""
    offered = rng.random(len(e)) < e
    return Logged(offered, e, np.where(offered, y, 0.0), np.ones(len(e)))


def _change(e: Rows, accepted: Rows, target: Rows) -> float:
    """What the target policy costs more than the logging policy, per row."""
    return float(((target - e) * (C_FA * (1 - accepted) - C_FN * accepted)).mean())


def _sizes(design: Design) -> Int[np.ndarray, " people"]:
    """Numbers of rows; unequal ones are quantiles."""
    sizes = np.full(design.people, design.rows)
    if design.sizes == "unequal":
        sizes = np.round(design.rows * np.exp(scipy.stats.norm.ppf(_grid(design.people)) - 0.5)).astype(int)
    elif design.sizes == "one has half":
        sizes[0] = design.rows * (design.people - 1)
    return np.maximum(sizes, 1)


def rows_of(design: Design, person: Int[np.ndarray, " rows"], rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Propensity and acceptance of every row: quantiles, in an order of their own in every log."""
    by = rng.permutation(_grid(len(person)))
    if design.kind == "rare people":
        by = rng.permutation(_grid(design.people))[person]
    e, accepted = KINDS[design.kind][1](design.value, by)
    return np.full(len(by), e), np.full(len(by), accepted)


def _grid(number_of: int) -> Rows:
    """Quantiles of the uniform distribution."""
    return (np.arange(number_of) + 0.5) / number_of


class Answers(NamedTuple):
    """Answers of all people in the order of time."""

    person: Int[np.ndarray, " n"]  # code of the person
    log_odds: Float64[np.ndarray, " n"]  # logit(s_t) of the score of the offer
    accepted: Float64[np.ndarray, " n"]  # 1 or 0
    counted: np.ndarray  # the answers that are measured


SIMULATED = person_layer.Population(scale=1.0, bias=0.0, spread=0.7, drift=0.005)


def simulated_answers(shift: float, *, people: int = 400, answers: int = 15, seed: int = 0) -> Answers:
    """Draws people who come one after the other, and whose mood changes together after half of all answers.

    `shift` is what the change adds to the log-odds; 0 is no change. `answers` is the number for each person, about ten
    of whom are there at a time.
    """
    rng = np.random.default_rng(seed)
    begins = np.sort(rng.uniform(0, people / 10 * answers, people))
    time = begins[:, None] + np.sort(rng.uniform(0, answers, (people, answers)), axis=1)
    own = rng.normal(0, SIMULATED.spread, (people, 1)) + np.cumsum(
        rng.normal(0, SIMULATED.drift**0.5, (people, answers)), axis=1
    )
    order = np.argsort(time.ravel())
    person = np.repeat(np.arange(people), answers)[order]
    log_odds = rng.normal(-0.3, 1.0, len(person))
    later = np.arange(len(person)) >= len(person) // 2
    truth = scipy.special.expit(log_odds + own.ravel()[order] + shift * later)
    return Answers(person, log_odds, (rng.random(len(person)) < truth).astype(float), later)


def turned(accepted: Float64[np.ndarray, " n"], later: np.ndarray) -> Float64[np.ndarray, " n"]:
    """The answers after a change of mood: of the later acceptances, half become rejections."""
    return np.where(later & (np.random.default_rng(0).random(len(accepted)) < 0.5), 0.0, accepted)
