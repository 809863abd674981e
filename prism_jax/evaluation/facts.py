"""What a table allows to be computed, from counts alone, so that parts of a table can add theirs up."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.policy_rows import judged
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import acceptance_weight

_COUNTED = ("p_need_true", "p_accept_true", "p_both_true", "p_need_slow", "p_accept_slow", "propensity", "logged")


@dataclasses.dataclass(frozen=True)
class Facts:
    """Counts of the rows that are evaluated; those of several parts add up (`merge`)."""

    columns: tuple[str, ...]  # those of the counted columns that there are
    rows: int = 0
    steps: int = 0
    null_rows: Mapping[str, int] = dataclasses.field(default_factory=dict)  # of these columns, where there are any
    null_steps: Mapping[str, int] = dataclasses.field(default_factory=dict)  # on the fast pass's candidates
    judged: int = 0  # steps whose labels are known
    judged_thought: int = 0  # those where the labels of the slow pass's candidate are, too; only with a whole slow pass
    hidden: int = 0  # steps at which the slow pass picks an offer that the log showed by chance or not at all
    needless: int = 0  # steps at which no help was needed
    judged_needless: int = 0  # those of them whose labels are known

    def merge(self, other: Facts) -> Facts:
        """The facts of the rows of both, which have the same columns."""
        sums: dict[str, Any] = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("rows", "steps", "judged", "judged_thought", "hidden", "needless", "judged_needless")
        }
        sums |= {
            name: dict(Counter(getattr(self, name)) + Counter(getattr(other, name)))
            for name in ("null_rows", "null_steps")
        }
        return Facts(self.columns, **sums)

    @property
    def slow(self) -> bool:
        """Whether every row has a probability of acceptance by the slow pass, so that it can rank candidates."""
        return "p_accept_slow" in self.columns and not self.null_rows.get("p_accept_slow")


def facts_of(rows: Scores) -> Facts:
    """The facts of some rows with whole steps."""
    steps = rows.steps()
    columns = tuple(name for name in _COUNTED if getattr(rows, name) is not None)

    def nulls(table: Scores) -> dict[str, int]:
        return {name: int(np.isnan(getattr(table, name)).sum()) for name in columns}

    known, needless = judged(steps), np.zeros(len(steps), bool) if steps.y_need is None else steps.y_need == 0
    facts = Facts(
        columns,
        len(rows),
        len(steps),
        nulls(rows),
        nulls(steps),
        int(known.sum()),
        needless=int(needless.sum()),
        judged_needless=int((known & needless).sum()),
    )
    if not facts.slow:
        return facts
    thought = rows.steps("slow")
    by_chance = np.zeros(len(steps), bool)
    for table in (steps, thought):
        by_chance |= acceptance_weight(table) != 1
        by_chance |= False if table.logged is None else table.logged == 0
    hidden = by_chance & (steps.candidate != thought.candidate)
    return dataclasses.replace(facts, judged_thought=int(judged(steps, thought).sum()), hidden=int(hidden.sum()))


def missing(facts: Facts, calibration: Calibration, has_need: bool) -> dict[str, str]:
    """The results that cannot be computed on the test split, each with the missing input.

    The slow pass ranks all candidates of a step, and silence misses the best, so both need every row.
    """
    off = {}
    needed = {
        "truth": (
            "Bayes oracle, regret, gap closed and distance to the truth",
            ("need_true", "accept_true", "both_true") if has_need else ("accept_true",),
        ),
        "slow pass": ("slow pass", ("need_slow", "accept_slow")),
    }
    units = "rows" if facts.rows > facts.steps else "steps"
    for key, (what, names) in needed.items():
        for name in (f"p_{name}" for name in names):
            if name not in facts.columns:
                off[key] = f"{what}: there is no column {name}"
            elif nulls := facts.null_rows.get(name):
                off[key] = f"{what}: {name} is null on {nulls} of {facts.rows} test {units}"
    if "slow pass" not in off and (calibration.need_slow is None or calibration.accept_slow is None):
        off["slow pass"] = "slow pass: the calibration has no slow signals"
    if facts.judged and facts.needless and not facts.judged_needless:
        off["needless offers"] = (
            f"offers that nobody needs: y_accept is unknown at all {facts.needless} test steps whose y_need is 0, so "
            "that costs are those of needed help alone, where always offering looks cheap"
        )
    for name in ("propensity", "logged"):
        if name not in facts.columns or facts.null_steps.get(name) == facts.steps:
            absent = name not in facts.columns
            without = f"there is no column {name}" if absent else f"{name} is null on every test step"
            off["weights"] = f"inverse-propensity weights (all are 1): {without}"
    return off


def incomparable(facts: Facts) -> str | None:
    """Why policies with a slow pass cannot be compared with the others on the same steps; None if they can."""
    if facts.judged and not facts.judged_thought:
        return "slow pass: no test step has labels of both passes' candidates"
    if not facts.hidden:
        return None
    return (
        f"slow pass: at {facts.hidden} of {facts.steps} test steps it picks another candidate than the fast pass, and "
        "the log showed one of them by chance or not at all"
    )


def shown_facts(rows: Scores) -> dict[str, int] | None:
    """What tells whether weights can stand for the offers that were not made; None where the table does not say so.

    The counts of parts with whole steps add up.
    """
    if rows.logged is None:
        return None
    silent, known = rows.logged == 0, np.zeros(len(rows), bool)
    if rows.propensity is not None:
        known = ~np.isnan(rows.propensity)
    weighed = np.bincount(rows.step_numbers(), known | ~silent) > 0
    return {
        "silent": int(silent.sum()),
        "shown_unknown": int((~known[rows.logged == 1]).sum()),
        "steps_unknown": int((~weighed).sum()),
    }


def unweighted(facts: Mapping[str, int], rows: int) -> ScoresError | None:
    """What is wrong with a table in which some offers were not made, and weights cannot stand for them; None if not.

    Every step needs a propensity, of a shown offer or of one that could have been.
    """
    if not facts["silent"] or not (facts["shown_unknown"] or facts["steps_unknown"]):
        return None
    return ScoresError(
        f"found no propensity beside logged = false on {facts['silent']} of {rows} rows, expected the probability of "
        "each offer: without it, costs would be those of the shown offers only, which --shown_only accepts and says in "
        "every title",
        "propensity",
    )
