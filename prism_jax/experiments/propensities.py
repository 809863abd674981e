"""Does weighting by inverse propensities bring p_accept closer to the truth?

    python -m prism_jax experiments propensities

In the simulator's log, offers depend on a variable that the prompt hides and that changes acceptance. A student trained
on the logged acceptances without weights therefore learns a biased p_accept; a student trained with SNIPS does not
(docs/maths.md, section 4). Each seed sets the streams, the initial parameters and the order of the data. For each seed,
two students that differ only in these weights are trained, and compared by the mean squared distance of p_accept to the
true probability on the test streams. With the hidden variable switched off there is no bias to remove, so SNIPS gains
nothing; the variance of its weights may cost a little.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from jaxtyping import Float

from prism_jax.experiments import need_target
from prism_jax.experiments.intervals import mean_over_seeds, show_interval
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runs.store import of_seed
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.training.run import Run, open_run
from prism_jax.training.run_config import RunConfig

SEEDS = range(6)
CONFIG = dataclasses.replace(
    need_target.CONFIG,
    data=DataConfig(train_streams=19_200, calibration_streams=1, test_streams=600),
    simulator=SimulatorConfig(min_events=3, max_events=3, responses=0),
)
"""Short streams and a tiny student: it learns them well enough that the remaining error is the bias."""


def squared_distance(run: Run) -> float:
    """Trains on logged acceptances and returns the mean squared distance of p_accept to the truth on test streams."""
    scores = need_target.trained_scores(run, ("test",))
    assert scores.p_accept_true is not None, "the simulator knows the truth"
    return float(np.mean((scores.p_accept_fast - scores.p_accept_true) ** 2))


def paired_gain(config: RunConfig, hidden_effect: float, seeds: Iterable[int]) -> Float[np.ndarray, " seeds"]:
    """For each seed, the squared distance to the truth of training without weights minus that of training with SNIPS.

    The seeds and the estimator of the config are replaced; the seeds are those of streams, initial parameters and order
    of the data. `hidden_effect` is the effect of the hidden variable on acceptance, as in `SimulatorConfig`.
    """

    def gain(seed: int) -> float:
        simulator = dataclasses.replace(config.simulator, hidden_effect=hidden_effect)
        run = open_run(of_seed(dataclasses.replace(config, simulator=simulator), seed))

        def distance(estimator: Literal["none", "snips"]) -> float:
            loss = dataclasses.replace(config.loss, estimator=estimator)
            return squared_distance(dataclasses.replace(run, config=dataclasses.replace(run.config, loss=loss)))

        return distance("none") - distance("snips")

    return np.array([gain(seed) for seed in seeds])


def table(gains: Mapping[str, Float[np.ndarray, " seeds"]], seeds: Iterable[int]) -> Table:
    """The gain of each seed and their mean with its interval, one row per name."""
    columns = (
        *(Column(f"seed {seed}", "Gain of this seed.") for seed in seeds),
        Column("mean gain", "Mean over seeds, with its 95 % t interval."),
    )
    rows = (
        Row(
            name,
            (*(f"{gain:+.4f}" for gain in of_seeds), show_interval(mean_over_seeds(of_seeds), digits=4, sign="+")),
        )
        for name, of_seeds in gains.items()
    )
    note = "Gain: squared distance of p_accept to the truth without weights, minus that with SNIPS."
    return Table("What inverse propensities gain", "", columns, (Section("", tuple(rows)),), note)


def measured() -> Table:
    """The gain with the hidden variable on and off; takes about half an hour of processor time."""
    effects = {"hidden variable on": 1.0, "hidden variable off": 0.0}
    return table({name: paired_gain(CONFIG, effect, SEEDS) for name, effect in effects.items()}, SEEDS)


def define_flags() -> None:
    """There are none."""


def main() -> Iterable[Table]:
    """Measures the gains."""
    return [measured()]
