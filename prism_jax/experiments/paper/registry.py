"""Every experiment by name: the module that makes it, what it is made of, and what it shows.

To add one, write a module with a function `make` of what it is made of, which returns an `Outcome`, and list it here;
docs/paper_tables.md gets a row.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Literal

from prism_jax.experiments.paper.study import Outcome

Of = Literal["scores", "student", "trainings", "files"]
"""What `make` is called with: the `Study` of any scores, that of a student trained here, trainings (`Subject`), or
public data (`Files`)."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment."""

    shows: str  # what it shows, in a sentence
    of: Of = "scores"  # what it is made of
    one_seed: bool = False  # whether it shows the first seed alone, where others take the mean over seeds
    # whether `all` runs it: the paper's tables, but not the studies in `studies`, which take longer or need public data
    in_all: bool = True
    takes: tuple[str, ...] = ()  # the flags that it reads and others do not


def _study(shows: str, of: Of, *takes: str) -> Experiment:
    return Experiment(shows, of, one_seed=True, in_all=False, takes=takes)


EXPERIMENTS: dict[str, Experiment] = {
    "main": Experiment("The deployed policy beside constants and the paper's systems."),
    "thresholds": Experiment("Ablation A: fixed, static and dynamic thresholds."),
    "inference": Experiment("Ablation B: fast pass, slow pass, slow pass within the margin."),
    "pathways": Experiment("Ablation C: training pathways.", "trainings"),
    "mechanism": Experiment("Ablation D: the gate without each signal, and without calibration."),
    "margin_sweep": Experiment("Results by slow margin."),
    "cost_margin_grid": Experiment("Results by cost ratio and slow margin."),
    "cost_sensitivity": Experiment("Results by cost ratio."),
    "domain_transfer": Experiment("A domain that training leaves out, before and after temperatures.", "trainings"),
    "calibration_quality": Experiment("Temperatures, calibration errors and Brier scores, before and after."),
    "drift": Experiment("Decisions under wrong temperatures and shifted thresholds."),
    "significance": Experiment("Paired differences with p-values, McNemar's test and equivalence."),
    "judge_agreement": Experiment("Agreement of pools of simulated judges with each other and the truth.", "student"),
    "judge_robustness": Experiment("The gain over a baseline under each pool of simulated judges.", "student"),
    "latency": Experiment("Seconds and tokens by phase and by policy.", "student"),
    "pareto": Experiment("AUDBC against tokens, with the efficient frontier."),
    "latency_pareto": Experiment("AUDBC against seconds.", "student"),
    "case_study": Experiment("One step, chosen by a stated rule.", one_seed=True),
    "thinking": _study("What the slow pass is worth, over three seeds.", "trainings"),
    "distillation": _study("What curation and the teacher's quality are worth.", "trainings"),
    "propensities": _study("What inverse propensities gain, over six seeds.", "trainings"),
    "proactivebench": _study("A pretrained student on people's votes, fold by fold.", "files", "source", "weights"),
    "human_labels": _study("Policies on people's votes.", "files", "source"),
    "official_scores": _study("ProactiveBench's published scores, checked, and its traces scored.", "files", "source"),
}
"""In the order in which `all` runs them; after them the studies that it leaves out."""


def function(name: str) -> Callable[[Any], Outcome]:
    """The function that makes an experiment."""
    if not EXPERIMENTS[name].in_all:
        return importlib.import_module("prism_jax.experiments.paper.studies").STUDIES[name]
    return importlib.import_module(f"prism_jax.experiments.paper.{name}").make


def made_of(*subjects: Of) -> tuple[str, ...]:
    """The names of the experiments that are made of some subjects."""
    return tuple(name for name, experiment in EXPERIMENTS.items() if experiment.of in subjects)


def check_flag(flag: str, names: tuple[str, ...]) -> None:
    """Raises ValueError if none of the chosen experiments reads a flag that was given."""
    if not any(flag in EXPERIMENTS[name].takes for name in names):
        readers = [name for name, experiment in EXPERIMENTS.items() if flag in experiment.takes]
        name = names[0] if len(names) == 1 else "all"
        raise ValueError(f"--{flag}: found it with {name}, expected it with {' or '.join(readers)} only")


def chosen(name: str) -> tuple[str, ...]:
    """The experiments that a name means, `all` or one of them; ValueError lists them all for an unknown name."""
    if name == "all":
        return tuple(name for name, experiment in EXPERIMENTS.items() if experiment.in_all)
    if name not in EXPERIMENTS:
        raise ValueError(
            f"experiment: found {name!r}, expected all or one of {', '.join(EXPERIMENTS)}; other studies are modules "
            "of their own, python -m prism_jax.experiments.NAME"
        )
    return (name,)
