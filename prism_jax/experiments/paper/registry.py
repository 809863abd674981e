"""Every experiment by name: the paper's tables, which share trainings and which `all` makes, and the studies.

To add a table, write a module beside this one with a function `make` of what it is made of, which returns an
`ExperimentResult`, and list it in `EXPERIMENTS`; docs/paper.md gets a row. A new study stands outside the package, in
`studies/` (studies/registry.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import pathlib
import runpy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from prism_jax.experiments.by_name import Entry

if TYPE_CHECKING:  # every `python -m` that imports the experiments asks for the names here
    from prism_jax.experiments.paper.study import ExperimentResult

Of = Literal["scores", "student", "trainings"]
"""What `make` is called with: the `Study` of any scores, that of a student trained here, or trainings (`Subject`)."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One of the paper's tables."""

    shows: str  # what it shows, in a sentence
    of: Of = "scores"  # what it is made of
    one_seed: bool = False  # whether it shows the first seed alone, where others take the mean over seeds
    own: Literal["", "system", "model", "held_out"] = ""  # the flag that makes it of files of one's own
    at: str = ""  # MODULE.FUNCTION that makes it; by default `make` of the module of its name

    @property
    def takes(self) -> str:
        """How long it takes on two idle cores."""
        of = {"scores": "2 minutes; with --scores seconds", "student": "2 minutes"}
        return of.get(self.of, "10 minutes")


EXPERIMENTS: dict[str, Experiment] = {
    "main": Experiment("The deployed policy beside constants; by --paper_numbers the paper's systems.", own="system"),
    "thresholds": Experiment("Ablation A: fixed, static and dynamic thresholds."),
    "inference": Experiment("Ablation B: fast pass, slow pass, slow pass within the margin."),
    "pathways": Experiment("Ablation C: training pathways.", "trainings", own="system"),
    "mechanism": Experiment("Ablation D: the gate without each signal, and without calibration."),
    "methods": Experiment("The method with corrected formulas beside the paper's as printed."),
    "margin_sweep": Experiment("Results by slow margin.", at="inference.by_margin"),
    "cost_margin_grid": Experiment("Results by cost ratio and slow margin.", at="inference.by_costs_and_margin"),
    "cost_sensitivity": Experiment("Results by cost ratio.", at="inference.by_costs"),
    "domain_transfer": Experiment(
        "A domain that training leaves out, before and after temperatures.", "trainings", own="held_out"
    ),
    "calibration_quality": Experiment("Temperatures, calibration errors and Brier scores, before and after."),
    "written": Experiment("p_accept read before and after the text that is judged."),
    "drift": Experiment("Decisions under wrong temperatures and shifted thresholds."),
    "significance": Experiment("Paired differences with p-values, McNemar's test and equivalence.", own="system"),
    "judge_agreement": Experiment(
        "Agreement of pools of simulated judges with each other and the truth.", "student", own="system"
    ),
    "judge_robustness": Experiment(
        "The gain over a baseline under each pool of simulated judges.", "student", own="system"
    ),
    "latency": Experiment("Seconds and tokens by phase and by policy.", "student", own="model"),
    "pareto": Experiment("AUDBC against tokens, with the efficient frontier.", at="pareto.by_tokens"),
    "latency_pareto": Experiment("AUDBC against seconds.", "student", own="model", at="pareto.by_seconds"),
    "case_study": Experiment("One step, chosen by a stated rule.", one_seed=True),
}
"""In the order in which `all` makes them."""


STUDIES: dict[str, Entry] = {
    "field": Entry("Baselines on other people's data, with costs and intervals.", "minutes", ("sources", "workdir")),
    "reproduce": Entry(
        "The paper from unlabelled streams to its tables, or a rehearsal of it.", "20 minutes", ("workdir",)
    ),
    "distill_demo": Entry("From unlabelled streams to a deployed student.", "5 minutes", ("workdir",)),
    "people_demo": Entry("What each person accepts, on a log whose truth is known.", "a minute"),
}


def function(name: str, kind: str = "make") -> Callable[..., ExperimentResult]:
    """The function that makes an experiment, also of other inputs (`Experiment`)."""
    module, _, maker = (EXPERIMENTS[name].at or f"{name}.{kind}").partition(".")
    return getattr(importlib.import_module(f"prism_jax.experiments.paper.{module}"), maker)


def chosen(name: str) -> tuple[str, ...]:
    """The experiments that a name means, `all` or one of them.

    Raises:
      ValueError: for an unknown name; it lists all.
    """
    if name == "all":
        return tuple(EXPERIMENTS)
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, (*EXPERIMENTS, *STUDIES), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        names = ", ".join((*EXPERIMENTS, *STUDIES))
        raise ValueError(f"experiment: found {name!r}, expected all or one of {names}{hint}")
    return (name,)


def of_checkout() -> Mapping[str, Entry]:
    """The studies beside the package, which it does not import; none where it is installed without its checkout."""
    beside = pathlib.Path(__file__).resolve().parents[3] / "studies" / "registry.py"
    return runpy.run_path(str(beside))["STUDIES"] if beside.is_file() else {}


def listed() -> list[dict[str, Any]]:
    """All names, with what they show, what they need, how long they take and the command that runs them."""
    ours = "python -m prism_jax experiments"
    tables = [
        {"name": name, "shows": one.shows, "needs": ["workdir"], "takes": one.takes, "all": True, "command": ours}
        for name, one in EXPERIMENTS.items()
    ]
    return tables + [
        {"name": name, "shows": one.shows, "needs": list(one.needs), "takes": one.takes, "all": False, "command": by}
        for by, studies in ((ours, STUDIES), ("python -m studies", of_checkout()))
        for name, one in studies.items()
    ]
