"""How often intervals of few units cover, and how often a difference of nothing is called one.

    python -m prism_jax experiments few_units

Units are streams of very different lengths (log-normal), whose rates differ (beta-binomial) and whose costs are skewed.
Each sample of 5, 13 or 40 streams gives an interval of level 95 % by each form; the truth is the value over 400,000
streams. Differences are those of two policies whose costs are equal on average: an interval that leaves out 0 is a
rejection of what is true. In the last three populations a rare kind of stream is terrible, and a sample without any of
them cannot know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np
from absl import flags
from jaxtyping import Float64, Int64

from prism_jax.decision.uncertainty import SHARE, UNBOUNDED, Bounds, Cells, interval
from prism_jax.report.table import Column, Row, Section, Table

UNITS = (5, 13, 40)
Form = Literal["jackknife", "percentile"]
FORMS: tuple[Form, ...] = ("jackknife", "percentile")
_TRUTH_STREAMS = 400_000

Streams = Float64[np.ndarray, "streams cells"]


class Population(NamedTuple):
    """Streams to draw, and what is estimated from them."""

    draw: Callable[[np.random.Generator, int], Streams]  # draws the cells of so many streams
    statistic: Callable[[np.ndarray], np.ndarray]  # the number that is estimated, of totals of the cells
    bounds: Bounds  # its smallest and largest value


def _steps(rng: np.random.Generator, streams: int) -> Int64[np.ndarray, " streams"]:
    """Lengths with a median of 10 and a coefficient of variation of about 1.1."""
    return np.maximum(1, np.round(np.exp(rng.normal(np.log(10), 0.9, streams)))).astype(np.int64)


def _beta(rng: np.random.Generator, mean: float, correlation: float, streams: int) -> Float64[np.ndarray, " streams"]:
    """Rates of streams whose answers have this correlation within a stream."""
    total = 1 / correlation - 1
    return rng.beta(mean * total, (1 - mean) * total, streams)


def _rate(mean: float, correlation: float) -> Population:
    def draw(rng: np.random.Generator, streams: int) -> Streams:
        steps = _steps(rng, streams)
        return np.stack([rng.binomial(steps, _beta(rng, mean, correlation, streams)), steps], axis=1).astype(float)

    return Population(draw, _ratio, SHARE)


def _ratio(totals: np.ndarray) -> np.ndarray:
    return np.asarray(totals[..., 0] / totals[..., 1])


def _confusion(prevalence: float, correlation: float) -> Callable[[np.random.Generator, int], Streams]:
    """Confusions, in the order tn, fp, fn, tp: a recall of 0.8 and a false positive rate of 0.2 that differ as well."""

    def draw(rng: np.random.Generator, streams: int) -> Streams:
        steps = _steps(rng, streams)
        positive = rng.binomial(steps, _beta(rng, prevalence, correlation, streams))
        tp = rng.binomial(positive, _beta(rng, 0.8, 0.1, streams))
        fp = rng.binomial(steps - positive, _beta(rng, 0.2, 0.15, streams))
        return np.stack([steps - positive - fp, fp, positive - tp, tp], axis=1).astype(float)

    return draw


def _cost(c_fn: float, prevalence: float, correlation: float) -> Population:
    def statistic(totals: np.ndarray) -> np.ndarray:
        return np.asarray((totals[..., 1] + c_fn * totals[..., 2]) / totals.sum(axis=-1))

    return Population(_confusion(prevalence, correlation), statistic, Bounds(0.0, c_fn))


def _difference(share: float, loss: int) -> Population:
    """Costs of one policy minus another's: 1 more at a share of the steps, `loss` less at a share that evens it out."""

    def draw(rng: np.random.Generator, streams: int) -> Streams:
        steps = _steps(rng, streams)
        habit = np.exp(rng.normal(-0.32, 0.8, (2, streams)))
        more, less = rng.binomial(steps, np.minimum(habit * np.array([[share], [share / loss]]), 0.5))
        return np.stack([more - loss * less, steps], axis=1).astype(float)

    return Population(draw, _ratio, UNBOUNDED)


def _rare(share: float, rate: float, longer: int, bounds: Bounds) -> Population:
    """A rare kind of stream, so many times longer, with 1 at a share of its steps; in a difference, others even it."""
    other = rate * share / (1 - share) if bounds is UNBOUNDED else 0.0

    def draw(rng: np.random.Generator, streams: int) -> Streams:
        steps, rare = _steps(rng, streams), rng.random(streams) < share
        steps = np.where(rare, longer * steps, steps)
        change = rng.binomial(steps, np.where(rare, rate, other))
        return np.stack([np.where(rare, change, -change), steps], axis=1).astype(float)

    return Population(draw, _ratio, bounds)


POPULATIONS: dict[str, Population] = {
    "rate of 0.5": _rate(0.5, 0.2),
    "rate of 0.9": _rate(0.9, 0.2),
    "rate of 0.97": _rate(0.97, 0.1),
    "rate of 0.1, streams of mostly one kind": _rate(0.1, 0.5),
    "precision": Population(_confusion(0.3, 0.15), lambda t: t[..., 3] / (t[..., 3] + t[..., 1]), SHARE),
    "F1": Population(_confusion(0.3, 0.15), lambda t: 2 * t[..., 3] / (2 * t[..., 3] + t[..., 1] + t[..., 2]), SHARE),
    "cost, C_FN = 2": _cost(2.0, 0.3, 0.15),
    "cost, C_FN = 8, rare need": _cost(8.0, 0.08, 0.3),
    "difference, symmetric": _difference(0.1, 1),
    "difference, skewed": _difference(0.06, 2),
    "difference, 15 % of the streams are terrible": _rare(0.15, 0.9, 1, UNBOUNDED),
    "difference, 5 % of the streams are terrible": _rare(0.05, 0.9, 1, UNBOUNDED),
    "rate of 0.36, all in 8 % of the streams": _rare(0.08, 0.5, 30, SHARE),
}


def truth(population: Population) -> float:
    """The value over very many streams."""
    return float(population.statistic(population.draw(np.random.default_rng(99), _TRUTH_STREAMS).sum(axis=0)))


def coverage(population: Population, units: int, method: Form | None = None, *, replications: int) -> float:
    """Share of samples whose interval holds the truth.

    All samples are columns of one statistic, so that one call gives the intervals of all of them. Samples on which the
    statistic is undefined, or which have no interval, do not count.
    """
    value, rng = truth(population), np.random.default_rng(0)
    samples = [population.draw(rng, units) for _ in range(replications)]
    with np.errstate(invalid="ignore", divide="ignore"):
        samples = [sample for sample in samples if np.isfinite(population.statistic(sample.sum(axis=0)))]
    cells = samples[0].shape[1]

    def statistic(totals: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return population.statistic(totals.reshape(*totals.shape[:-1], len(samples), cells))

    intervals = interval(
        Cells.of_units(np.concatenate(samples, axis=1)),
        statistic,
        bounds=population.bounds,
        method=method,
        resamples=999,
    )
    has_interval = ~np.isnan(intervals.low)
    return float(((intervals.low <= value) & (value <= intervals.high))[has_interval].mean())


def table(replications: int, populations: Iterable[str] = tuple(POPULATIONS)) -> Table:
    """Coverage of every form, by population and number of streams."""
    columns = tuple(Column(f"{form}, {units}", unit="%") for form in FORMS for units in UNITS)
    rows = []
    for name in populations:
        coverages = (
            coverage(POPULATIONS[name], units, form, replications=replications) for form in FORMS for units in UNITS
        )
        rows.append(Row(name, tuple(f"{100 * share:.1f}" for share in coverages)))
    note = f"Intervals of level 95 %, {replications:,} samples of so many streams; 999 resamples."
    return Table("How often intervals hold the truth", "statistic", columns, (Section("", tuple(rows)),), note)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_integer("replications", 2000, "Number of samples for each number.", lower_bound=10)


def main() -> Iterable[Table]:
    """Measures coverage and rejections."""
    return [table(flags.FLAGS.replications)]
