"""Trains variants of a student with several seeds and compares what they decide: what the studies that train share.

A study declares a base config, its variants, seeds, and tables. A seed sets the streams, the initial parameters and the
order of the data. Trainings and scores are kept in the folder `trainings` of --workdir, which
`python -m prism_jax experiments` shares: a call that was interrupted resumes them, and a later one repeats none.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from absl import flags
from etils import epath
from jaxtyping import Float64, Shaped

from prism_jax.decision import gate
from prism_jax.decision.calibration import CalibrationConfig, Calibrator
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation import protocol, triggers
from prism_jax.evaluation.merged import running
from prism_jax.evaluation.policy_rows import Decided, EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.intervals import mean_over_seeds, show_interval
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runs.store import Signals, Store, of_seed
from prism_jax.scores import Scores
from prism_jax.training.run_config import RunConfig

SEEDS = (0, 1, 2)
RESAMPLES = 2000
"""Bootstrap resamples of whole streams."""
K = TypeVar("K")

Train = Callable[[RunConfig, Store], Scores]
"""The raw scores of a variant of a config, whose seed is set; trains it unless the store has it."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A student whose settings differ from those of the base config."""

    name: str  # of its trainings in the store
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what differs, as "section.field"
    start: Variant | None = None  # the variant that it continues from
    signals: Signals = "all"

    def config(self, base: RunConfig, store: Store) -> RunConfig:
        """Its config; trains what it continues from."""
        if self.start is None:
            return laid_over(base, self.settings)
        start = store.finished(self.start.name, self.start.config(base, store)).resolve()
        return laid_over(base, {**self.settings, "training.start": str(start)})

    def __call__(self, base: RunConfig, store: Store) -> Scores:
        """Its raw scores."""
        return store.scores(self.name, self.config(base, store), self.signals)


def laid_over(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """The config with some fields replaced, as "section.field"; all at once, since some are valid together only."""
    sections: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, value in settings.items():
        section, name = path.split(".")
        sections[section][name] = value
    changed = {name: dataclasses.replace(getattr(config, name), **fields) for name, fields in sections.items()}
    return dataclasses.replace(config, **changed)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Variants of a base config, each of which is trained with every seed."""

    base: RunConfig
    variants: Mapping[str, Train]
    seeds: Sequence[int] = SEEDS

    def scores(self, store: Store) -> dict[str, list[Scores]]:
        """The raw scores by variant, one table per seed."""
        configs = [of_seed(self.base, seed) for seed in self.seeds]
        return {name: [train(config, store) for config in configs] for name, train in self.variants.items()}


@contextlib.contextmanager
def open_store() -> Iterator[Store]:
    """The store in --workdir, where no other process trains meanwhile."""
    with Store(epath.Path(flags.FLAGS.workdir) / "trainings").claimed() as store:
        yield store


def workdir_flag() -> None:
    """Defines --workdir, the one flag of every study that trains."""
    flags.DEFINE_string("workdir", None, "Folder for the trainings and the tables.", required=True)


@dataclasses.dataclass(frozen=True)
class Measured:
    """One number per seed, or per test step of each seed; what is subtracted is paired by them."""

    values: Sequence[Float64[np.ndarray, "..."]]  # of each seed
    stream: Sequence[Shaped[np.ndarray, "steps"]] = ()  # of each step; none where there is one number per seed

    def __sub__(self, other: Measured) -> Measured:
        """The difference, paired by seed and by step."""
        assert all((own == its).all() for own, its in zip(self.stream, other.stream, strict=True)), "on other steps"
        return Measured(
            [np.asarray(own - its) for own, its in zip(self.values, other.values, strict=True)], self.stream
        )

    @property
    def mean(self) -> float:
        """The mean over steps of all seeds."""
        return float(np.concatenate([np.atleast_1d(value) for value in self.values]).mean())

    def by_seed(self, form: str = "+.3f") -> str:
        """The mean of each seed."""
        return ", ".join(format(value.mean(), form) for value in self.values)

    def over_seeds(self, digits: int = 3, sign: str = "") -> str:
        """The mean over seeds with its 95 % t interval, which a single seed does not have."""
        means = np.array([value.mean() for value in self.values])
        if len(means) == 1:
            return format(means[0], f"{sign}.{digits}f")
        return show_interval(mean_over_seeds(means), digits=digits, sign=sign)

    def over_streams(self, digits: int = 3, sign: str = "") -> str:
        """The mean over steps with its 95 % interval over the streams of all seeds; it holds for these trainings."""
        streams = [np.char.add(f"{seed}/", names.astype(str)) for seed, names in enumerate(self.stream)]
        estimate = mean_interval(np.concatenate(self.values), np.concatenate(streams), resamples=RESAMPLES)
        return show_interval(estimate, digits=digits, sign=sign)


@dataclasses.dataclass(frozen=True)
class Costs:
    """What each rule of one student costs at the test steps of one seed."""

    stream: Shaped[np.ndarray, "steps"]
    expected: Mapping[str, Float64[np.ndarray, "steps"]]  # under the simulator's truth
    realised: Mapping[str, Float64[np.ndarray, "steps"]]  # under the labels
    slow: Mapping[str, Float64[np.ndarray, "steps"]]  # 1 where a rule thinks, else 0

    @staticmethod
    def measured(of_seeds: Sequence[Costs], kind: Literal["expected", "realised", "slow"], rule: str) -> Measured:
        """One of these numbers of one rule, with every seed."""
        return Measured([getattr(of, kind)[rule] for of in of_seeds], [of.stream for of in of_seeds])


FAST, MARGIN = "fast pass", "margin of 0.1"
POLICIES = {
    "static": "p_accept alone",
    "dynamic": FAST,
    "slow_only": "slow pass",
    "slow_on_margin": MARGIN,
    "slow_on_value": "value above its price",
}
BAYES, EXACT = "Bayes, on the true probabilities", "exact, unconditional"
"""The best decisions, and those of the gate on the true p_accept and the true unconditional need."""


def costs(
    scores: Scores, point: OperatingPoint, form: Form = "calibrated", calibrator: Calibrator = "temperature"
) -> Costs:
    """The costs of policies, constants and oracles, and of the triggers at shares of slow steps, at one point.

    The maps of the calibrated form are fitted on the calibration steps; the simulator's truth must be known.
    """
    fits = protocol.calibrate(scores, CalibrationConfig(calibrator))
    data, _ = protocol.prepare(scores, fits, point)
    known = {policy: name for policy, name in POLICIES.items() if policy in data.fast_policies + data.slow_policies}
    decided = {name: data.decide(policy, form) for policy, name in known.items()} | oracles(data)
    decided |= {constant: data.decide(constant, form) for constant in ("never", "always")}
    expected = {name: data.expected_costs(rule) for name, rule in decided.items()}
    slow = {name: rule.slow.astype(float) for name, rule in decided.items()}
    if data.slow:
        passes = triggers.Passes(expected[FAST], expected["slow pass"])
        for share in running.shares(scores, fits, point):
            if share.trigger in ("margin", "value"):
                name = f"{share.trigger}, {share.budget:.0%}"
                expected[name], slow[name] = share.mix(passes), share.of.astype(float)
    return Costs(data.steps.stream, expected, {name: data.costs(rule) for name, rule in decided.items()}, slow)


def oracles(data: EvaluationData) -> dict[str, Decided]:
    """The decisions of those who know the truth."""
    need, accept = data.steps.p_need_true, data.steps.p_accept_true
    assert need is not None and accept is not None, "the simulator knows the truth"
    exact = np.asarray(gate.decide(need, accept, data.point.c_fa, data.point.c_fn))
    return {BAYES: data.oracle(data.truth()), EXACT: Decided(exact, np.zeros(len(exact), bool))}


def table(
    title: str,
    columns: Sequence[Column],
    sections: Mapping[str, Mapping[str, K]],
    cells: Callable[[K], Sequence[str]],
    note: str = "",
    names: str = "",
) -> Table:
    """A table of rows by section and name; `cells` shows what a row is made of, one cell per column."""
    shown = (
        Section(heading, tuple(Row(name, tuple(cells(of))) for name, of in rows.items()))
        for heading, rows in sections.items()
    )
    return Table(title, names, tuple(columns), tuple(shown), note)
