"""Every experiment by name: the module that makes it, and what it shows.

To add one, write a module with a function `make(study) -> Outcome` and list it here; docs/paper_tables.md gets a row.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable

from prism_jax.experiments.paper.study import Outcome, Study


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
      shows: What it shows, in a sentence.
      module: Module with the function `make`; empty is the module of its own name in this package.
    """

    shows: str
    module: str = ""


EXPERIMENTS: dict[str, Experiment] = {
    "main": Experiment("The deployed policy beside constants and the paper's systems."),
    "thresholds": Experiment("Ablation A: fixed, static and dynamic thresholds."),
    "inference": Experiment("Ablation B: fast pass, slow pass, slow pass within the margin."),
    "mechanism": Experiment("Ablation D: the gate without each signal, and without calibration."),
    "margin_sweep": Experiment("Results by slow margin."),
    "cost_margin_grid": Experiment("Results by cost ratio and slow margin."),
    "cost_sensitivity": Experiment("Results by cost ratio."),
    "calibration_quality": Experiment("Temperatures, calibration errors and Brier scores, before and after."),
    "drift": Experiment("Decisions under wrong temperatures and shifted thresholds."),
    "significance": Experiment("Paired differences with p-values, McNemar's test and equivalence."),
    "pareto": Experiment("AUDBC against tokens, with the efficient frontier."),
    "case_study": Experiment("One step, chosen by a stated rule."),
}
"""In the order in which `all` runs them."""


def function(name: str) -> Callable[[Study], Outcome]:
    """The function that makes an experiment."""
    module = EXPERIMENTS[name].module or f"prism_jax.experiments.paper.{name}"
    return importlib.import_module(module).make


def chosen(name: str) -> tuple[str, ...]:
    """The experiments that a name means, `all` or one of them.

    Raises:
      ValueError: for an unknown name; it lists all.
    """
    if name == "all":
        return tuple(EXPERIMENTS)
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment: found {name!r}, expected all or one of {', '.join(EXPERIMENTS)}")
    return (name,)
