"""How often intervals of few streams cover, and how often a difference of nothing is called one.

Differences are those of two policies whose costs are equal on average: an interval that leaves out 0 is a rejection of
what is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from prism_jax.decision.uncertainty import Cells, interval
from prism_jax.report.table import Column, Row, Section, Table
from studies.coverage.counting import Counted, count
from studies.coverage.drawing import POPULATIONS, Population, Streams

UNITS = (5, 13, 40)
Form = Literal["jackknife", "percentile"]
FORMS: tuple[Form, ...] = ("jackknife", "percentile")


def intervals(population: Population, units: int, times: int, forms: Sequence[Form | None] = (None,)) -> list[Counted]:
    """The intervals of samples of so many streams, by form; None is the default.

    All samples are columns of one statistic, so that one call gives the intervals of all of them. Samples on which the
    statistic is undefined do not count.
    """

    def estimate(drawn: Iterator[Streams]) -> list[np.ndarray]:
        with np.errstate(invalid="ignore", divide="ignore"):
            samples = [sample for sample in drawn if np.isfinite(population.statistic(sample.sum(axis=0)))]
        cells = samples[0].shape[1]

        def statistic(totals: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore", divide="ignore"):
                return population.statistic(totals.reshape(*totals.shape[:-1], len(samples), cells))

        together = Cells.of_units(np.concatenate(samples, axis=1))
        found = (interval(together, statistic, bounds=population.bounds, method=form, resamples=999) for form in forms)
        return [np.stack([one.value, one.low, one.high, np.zeros(len(samples))], axis=1) for one in found]

    return count(population.truth, lambda rng: population.draw(rng, units), estimate, times)


def table(times: int) -> Table:
    """Coverage of every form, by population and number of streams."""
    columns = tuple(Column(f"{form}, {units} streams", unit="%") for form in FORMS for units in UNITS)
    rows = []
    for name, population in POPULATIONS.items():
        by_units = [intervals(population, units, times, FORMS) for units in UNITS]
        cells = (f"{100 * counted.coverage:.1f}" for of_form in zip(*by_units, strict=True) for counted in of_form)
        rows.append(Row(name, tuple(cells)))
    note = f"Intervals of level 95 %, {times:,} samples of so many streams; 999 resamples."
    return Table("How often intervals hold the truth", "statistic", columns, (Section("", tuple(rows)),), note)
