"""Which meaning of p_need costs less: need alone, or need given that the offer is accepted?

    python -m prism_jax experiments need_target_costs --workdir=runs/need_target_costs

Trains pairs of tiny students that differ only in `loss.need_target`: on the simulator's items, where a fast pass is
enough, and on its switches, where thinking pays; on all rows, and with as many updates on half and on a tenth of them,
since fewer rows are accepted than labelled; with three seeds each, which set the streams, the initial parameters and
the order of the data. Both students of a pair are calibrated and decide on the same test streams. Their costs are
compared under the simulator's truth: the fast pass alone, the slow pass alone, and the triggers at equal slow rates.
Trainings and scores are kept in the workdir, so that a second call repeats none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

import numpy as np
from absl import flags
from etils import epath
from jaxtyping import Float64

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation import protocol, splits, triggers
from prism_jax.evaluation.merged import running
from prism_jax.experiments.students import THINKING
from prism_jax.report.numbers import show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.training.loss_config import LossConfig, NeedTarget
from prism_jax.training.pathways.table import PathwayConfig
from prism_jax.training.run_config import RunConfig

TARGETS: tuple[NeedTarget, ...] = get_args(NeedTarget)
SEEDS = (0, 1, 2)
RATIOS = (1.0, 2.0, 4.0)
SHARES = (1.0, 0.5, 0.1)
"""Shares of the training rows; the number of updates stays, so that fewer rows are used more often."""
POPULATIONS: Mapping[str, RunConfig] = {
    "items": dataclasses.replace(
        THINKING,
        simulator=SimulatorConfig(responses=0),
        loss=LossConfig(response=0.0, accept=1.2),
        pathway=PathwayConfig(),
    ),
    "switches": THINKING,
}
"""The recipe on each population; on items there is nothing to think about, and the fast pass is trained alone."""
Costs = Mapping[str, Float64[np.ndarray, "steps"]]
"""Expected cost of every test step under the truth, by what decides."""
Pair = Mapping[NeedTarget, Costs]


def sized(config: RunConfig, share: float) -> RunConfig:
    """The config with a share of its training streams, and as many updates as before."""
    streams = round(share * config.data.train_streams)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, train_streams=streams))


def expected_costs(scores: Scores, ratio: float) -> tuple[Costs, dict[str, float]]:
    """The expected costs of every rule at one cost ratio, and the share of steps at which it thinks.

    The scores are those of one student on calibration and test streams, with the simulator's truth; the ratio is C_FN /
    C_FA, with C_FA = 1.
    """
    calibration = protocol.calibrate(scores)
    data, _ = protocol.prepare(scores, calibration, OperatingPoint(c_fn=ratio))
    costs, thinks = {}, {}
    for policy, name in _POLICIES.items():
        if policy in data.fast_policies or policy in data.slow_policies:
            decided = data.decide(policy, "calibrated")
            costs[name], thinks[name] = data.expected_costs(decided), float(decided.slow.mean())
    if data.slow:
        passes = triggers.Passes(costs["fast pass"], costs["slow pass"])
        for share in running.shares(scores, calibration, data.point):
            if share.trigger in ("margin", "value"):
                name = f"{share.trigger}, {share.budget:.0%}"
                costs[name], thinks[name] = share.mix(passes), float(share.of.mean())
    return costs, thinks


_POLICIES = {
    "static": "p_accept alone",
    "dynamic": "fast pass",
    "slow_only": "slow pass",
    "slow_on_margin": "margin of 0.1",
    "slow_on_value": "value above its price",
}


@dataclasses.dataclass(frozen=True)
class Compared:
    """Both students of one population, share of rows and cost ratio, over all seeds."""

    costs: Pair  # expected cost of every test step of all seeds, by meaning and rule
    thinks: Mapping[NeedTarget, Mapping[str, float]]  # share of steps at which each rule thinks, the mean over seeds
    stream: np.ndarray  # stream of every step, with its seed
    seed: np.ndarray  # seed of every step


def compare(scores: Mapping[int, Mapping[NeedTarget, Scores]], ratio: float) -> Compared:
    """The costs of both meanings at one cost ratio, from the scores of every seed."""
    costs: dict[NeedTarget, dict[str, list[np.ndarray]]] = {target: {} for target in TARGETS}
    thinks: dict[NeedTarget, dict[str, list[float]]] = {target: {} for target in TARGETS}
    streams, seeds = [], []
    for seed, both in scores.items():
        steps = [splits.evaluated_rows(table).steps() for table in both.values()]
        assert all((rows.stream == steps[0].stream).all() for rows in steps), "both students see the same streams"
        streams.append(np.array([f"{seed}/{name}" for name in steps[0].stream]))
        seeds.append(np.full(len(steps[0]), seed))
        for target, table in both.items():
            expected, rates = expected_costs(table, ratio)
            for name in expected:
                costs[target].setdefault(name, []).append(expected[name])
                thinks[target].setdefault(name, []).append(rates[name])
    return Compared(
        {target: {name: np.concatenate(parts) for name, parts in rules.items()} for target, rules in costs.items()},
        {target: {name: float(np.mean(rates)) for name, rates in rules.items()} for target, rules in thinks.items()},
        np.concatenate(streams),
        np.concatenate(seeds),
    )


def section(compared: Compared, title: str, resamples: int) -> Section:
    """The costs of both meanings by rule, with their paired difference."""
    rows = []
    for name, marginal in compared.costs["marginal"].items():
        given_accept = compared.costs["given_accept"][name]
        difference = given_accept - marginal
        seeds = ", ".join(f"{difference[compared.seed == seed].mean():+.4f}" for seed in np.unique(compared.seed))
        rates = [compared.thinks[target][name] for target in TARGETS]
        rows.append(
            Row(
                name,
                (
                    f"{marginal.mean():.4f}",
                    f"{given_accept.mean():.4f}",
                    show_estimate(mean_interval(difference, compared.stream, resamples=resamples), sign=True),
                    seeds,
                    ", ".join(f"{rate:.0%}" for rate in rates) if max(rates) else "",
                ),
            )
        )
    return Section(title, tuple(rows))


def scores_of(store: Store, name: str, config: RunConfig) -> dict[int, dict[NeedTarget, Scores]]:
    """The scores of every seed with both meanings; trains what the store does not have."""
    losses = {target: dataclasses.replace(config.loss, need_target=target) for target in TARGETS}
    configs = {target: dataclasses.replace(config, loss=loss) for target, loss in losses.items()}
    return {
        seed: {target: store.scores(f"{name}-{target}", of_seed(own, seed)) for target, own in configs.items()}
        for seed in SEEDS
    }


def study(store: Store, populations: Sequence[str], shares: Sequence[float], resamples: int) -> Iterator[Table]:
    """Yields one table per population and share of rows."""
    columns = (
        Column("marginal", "Expected cost per step with p_need unconditional."),
        Column("given_accept", "The same with p_need given acceptance."),
        Column("given_accept − marginal", "Paired difference, with its 95 % interval over streams of all seeds."),
        Column("by seed", "The difference of every seed."),
        Column("thinks", "Share of test steps with a slow pass, with marginal and with given_accept."),
    )
    note = (
        "Expected costs under the simulator's truth, C_FA = 1; below 0 given_accept is cheaper. A trigger with a share "
        "has its threshold from calibration steps. Intervals hold for these trainings."
    )
    for population in populations:
        for share in shares:
            scores = scores_of(store, population, sized(POPULATIONS[population], share))
            sections = tuple(section(compare(scores, ratio), f"C_FN / C_FA = {ratio:g}", resamples) for ratio in RATIOS)
            yield Table(f"What p_need means, {population}, {share:.0%} of the rows", "", columns, sections, note)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("workdir", None, "Folder for the trainings.", required=True)
    flags.DEFINE_multi_enum("populations", list(POPULATIONS), list(POPULATIONS), "Populations to train on.")
    flags.DEFINE_list("shares", [str(share) for share in SHARES], "Shares of the training rows.")
    flags.DEFINE_integer("resamples", 2000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Trains the students; yields a table per population and share."""
    options = flags.FLAGS
    store = Store(epath.Path(options.workdir) / "trainings")
    with store.claimed():
        yield from study(store, options.populations, tuple(map(float, options.shares)), options.resamples)
