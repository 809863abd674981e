"""Which meaning of p_need costs less: need alone, or need given that the offer is accepted?

    python -m studies need_target --workdir=DIR [--populations=items ...] [--shares=1]

The gate needs Pr(need and accept) = p_accept * Pr(need | accept). With the unconditional need it assumes that the two
are independent (docs/maths.md, section 2). Pairs of tiny students that differ only in `loss.need_target` are trained
and calibrated, and their costs are compared under the simulator's truth: the fast pass alone and, where there is a slow
pass, that alone and the triggers at equal slow rates. The populations:

- opposed, aligned: need and acceptance depend on each other given the history; at dependence -1 they coincide as rarely
  as they can, at 1 the less likely one implies the other. Costs are shown as regret, beyond those of the best
  decisions, also of a gate that knows the true p_accept and the true unconditional need.
- items, switches: the simulator's own, where a fast pass is enough and where thinking pays; on all rows, and with as
  many updates on half and on a tenth of them, since fewer rows are accepted than labelled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

from absl import flags

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.report.table import Column, Table
from prism_jax.scores import Scores
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.training import students
from prism_jax.training.loss_config import LossConfig, NeedTarget
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.students import THINKING
from studies.runner import (
    BAYES,
    EXACT,
    Comparison,
    Costs,
    Measured,
    Variant,
    costs,
    laid_over,
    open_store,
    table,
    workdir_flag,
)

TARGETS: tuple[NeedTarget, ...] = get_args(NeedTarget)


class Population(NamedTuple):
    """What students are trained on, and what is shown of them."""

    config: RunConfig
    shares: tuple[float, ...] = (1.0, 0.5, 0.1)  # of the training rows, with the same number of updates
    ratios: tuple[float, ...] = (1.0, 2.0, 4.0)  # C_FN / C_FA
    regret: bool = False  # whether costs are those beyond the best decisions


DEPENDENT = RunConfig(
    data=DataConfig(train_streams=19_200, calibration_streams=1000, test_streams=2000),
    simulator=SimulatorConfig(min_events=3, max_events=3, responses=0, hidden_effect=0.0),
    prompt=students.PROMPT,
    student=students.STUDENT,
    loss=LossConfig(response=0.0, burden=0.0),
    training=TrainingConfig(steps=600, batch=32, learning_rate=3e-3, checkpoint_every=600),
)
"""Short streams and a tiny student, whose remaining errors are small beside what the wrong assumption costs."""

ITEMS = dataclasses.replace(
    THINKING,
    simulator=SimulatorConfig(responses=0),
    loss=LossConfig(response=0.0, accept=1.2),
    pathway=PathwayConfig(),
)
"""There is nothing to think about on items, and the fast pass is trained alone."""

# At a ratio of 3 the wrong assumption costs at both dependences; at 2 and 4, at one of them each.
POPULATIONS = {
    name: Population(laid_over(DEPENDENT, {"simulator.dependence": dependence}), (1.0,), (2.0, 3.0, 4.0), regret=True)
    for name, dependence in {"opposed": -1.0, "aligned": 1.0}.items()
} | {"items": Population(ITEMS), "switches": Population(THINKING)}


def comparison_of(name: str, config: RunConfig, share: float) -> Comparison:
    """Both meanings on a share of the training streams of one population, with as many updates as on all."""
    base = laid_over(config, {"data.train_streams": round(share * config.data.train_streams)})
    return Comparison(base, {target: Variant(f"{name}-{target}", {"loss.need_target": target}) for target in TARGETS})


COLUMNS = (
    Column("marginal", "Mean per step with p_need unconditional."),
    Column("given_accept", "The same with p_need given acceptance."),
    Column("given_accept − marginal", "Paired difference, with its 95 % interval over streams of all seeds."),
    Column("by seed", "The difference of every seed."),
    Column("thinks", "Share of test steps with a slow pass, with marginal and with given_accept."),
)


def cost_table(title: str, scores: Mapping[str, Sequence[Scores]], ratios: Sequence[float], *, regret: bool) -> Table:
    """The costs of both meanings by ratio and rule, with their paired difference."""
    pairs = {
        ratio: {target: [costs(of, OperatingPoint(c_fn=ratio)) for of in scores[target]] for target in TARGETS}
        for ratio in ratios
    }

    def cells(of: tuple[float, str]) -> tuple[str, ...]:
        ratio, rule = of

        def measured(target: NeedTarget) -> Measured:
            own = Costs.measured(pairs[ratio][target], "expected", rule)
            return own - Costs.measured(pairs[ratio][target], "expected", BAYES) if regret else own

        marginal, given_accept = map(measured, TARGETS)
        change = given_accept - marginal
        slow = [Costs.measured(pairs[ratio][target], "slow", rule).mean for target in TARGETS]
        return (
            f"{marginal.mean:.4f}",
            f"{given_accept.mean:.4f}",
            change.over_streams(4, "+"),
            change.by_seed("+.4f"),
            ", ".join(f"{share:.0%}" for share in slow) if max(slow) else "",
        )

    left_out = (BAYES, "never", "always", *[EXACT] * (not regret))
    rules = [rule for rule in pairs[ratios[0]]["marginal"][0].expected if rule not in left_out]
    sections = {f"C_FN / C_FA = {ratio:g}": {rule: (ratio, rule) for rule in rules} for ratio in ratios}
    note = (
        f"{'Regret: expected cost beyond the best decisions' if regret else 'Expected costs'} under the simulator's "
        "truth, C_FA = 1; below 0 given_accept is cheaper. A trigger with a share has its threshold from calibration "
        "steps. Intervals hold for these trainings."
    )
    return table(title, COLUMNS, sections, cells, note)


def define_flags() -> None:
    """Defines the command-line flags."""
    workdir_flag()
    flags.DEFINE_multi_enum("populations", list(POPULATIONS), list(POPULATIONS), "Populations to train on.")
    flags.DEFINE_multi_enum("shares", ["1", "0.5", "0.1"], ["1", "0.5", "0.1"], "Shares of the training rows.")


def main() -> Iterable[Table]:
    """Trains the students; yields a table per population and share."""
    chosen = [float(share) for share in flags.FLAGS.shares]
    shares = dict.fromkeys(share for name in flags.FLAGS.populations for share in POPULATIONS[name].shares)
    if not shares.keys() & chosen:
        raise ValueError(
            f"--shares: found {', '.join(flags.FLAGS.shares)}, expected {' or '.join(map('{:g}'.format, shares))}: "
            f"no other is studied of {', '.join(flags.FLAGS.populations)}"
        )
    with open_store() as store:
        for name in flags.FLAGS.populations:
            population = POPULATIONS[name]
            for share in population.shares:
                if share in chosen:
                    scores = comparison_of(name, population.config, share).scores(store)
                    title = f"What p_need means, {name}, {share:.0%} of the rows"
                    yield cost_table(title, scores, population.ratios, regret=population.regret)
