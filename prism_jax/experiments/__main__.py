"""The paper's tables and figures, and what makes them, by name.

    python -m prism_jax experiments --list          # or --json: what each shows, needs, and how long it takes
    python -m prism_jax experiments all --workdir=DIR
    python -m prism_jax experiments NAME --workdir=DIR
    python -m prism_jax experiments all --scores=FILE --workdir=DIR
    python -m prism_jax experiments NAME --help     # the flags of a study

Each prints its tables and writes them into DIR as CSV, Markdown and LaTeX, and its figure as SVG and PNG where
matplotlib is installed (`pip install 'prism_jax[figures]'`). docs/paper.md lists the paper's tables.

Without --scores, tiny students are trained on the built-in simulator. Trainings are kept in DIR/trainings: a call that
was interrupted resumes them, and a later one computes tables without training again. With --scores, the tables are
computed on the scores files of any agent (docs/scores.md), and those that need a training are skipped. More than two
million rows are read part by part [--runner=local|ray --workers=N --skip_bad].

Some tables are made of other files of one's own, without --scores:

    main, significance, judge_agreement, judge_robustness, pathways
        --system=NAME=PATH [--system=...] [--panel=NAME=VOTES ...] [--human=FILE,FILE] [--against=NAME]
    latency, latency_pareto     --model=EXPORT --streams=FILE [--scores=FILE]
    domain_transfer             --scores=FILE --held_out=DOMAIN

PATH is a scores table with labels, a folder of traces, or a file of streams that say what was offered; VOTES is what
`python -m prism_jax judge` wrote. --held_out is the domain of --config.data.without_domain, which training left out.

`all` makes the paper's tables. Studies are run by name alone: they take longer, or need public data, and have flags of
their own. One that needs no folder writes its tables where --workdir names one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
from typing import Any, get_args

from absl import flags
from etils import epath

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.experiments import by_name
from prism_jax.experiments.paper import registry
from prism_jax.experiments.paper.system_options import RESAMPLES, SystemOptions
from prism_jax.runs.running import OF_FILES, Running
from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty
from prism_jax.training.pathway_config import Method


def define_flags() -> None:
    """Defines the flags of the paper's tables."""
    flags.DEFINE_string("workdir", None, "Folder to write to.")
    flags.DEFINE_string(
        "scores",
        None,
        "Scores of any agent: a file, .parquet or .jsonl, a folder or a glob; by default students are trained.",
    )
    flags.DEFINE_string("scores_paper", None, "Scores of a student curated as printed, beside --scores in `methods`.")
    flags.DEFINE_enum("method", "corrected", get_args(Method), "With paper: also AUDBC and pathways as it prints them.")
    flags.DEFINE_bool("paper_numbers", False, "Show the paper's numbers too, which are on other data.")
    flags.DEFINE_integer("seeds", 1, "Number of seeds to train with; tables show means over them.", 1)
    flags.DEFINE_integer("resamples", RESAMPLES, "Number of bootstrap resamples of each interval.", 1)
    for name, what in {"c_fa": "Cost C_FA", "c_fn": "Cost C_FN", "margin": "Slow margin"}.items():
        flags.DEFINE_float(name, getattr(OperatingPoint, name), f"{what} of the tables that do not vary it.")
    flags.DEFINE_string("model", None, "Exported student, or workdir of a run, whose passes `latency` times.")
    flags.DEFINE_string("streams", None, "With --model: JSONL file of the streams to time them on.")
    flags.DEFINE_string("held_out", None, "With --scores: the domain that the student was trained without.")
    SystemOptions.define_flags()
    Running.define_flags()
    refuse_empty("workdir", "scores", "scores_paper", "model", "streams", "held_out")


def main(arguments: list[str]) -> None:
    """Makes the paper's tables of a name."""
    names, options, folder = registry.chosen(by_name.only(arguments)), flags.FLAGS, epath.Path(flags.FLAGS.workdir)
    check_together(
        f"scores_paper {' '.join(OF_FILES)} without scores: it with a scores file",
        "held_out without scores: the scores of the student",
        "model without streams: the streams to time it on",
        "streams without model: the model to time on them",
    )
    systems, model = SystemOptions.of_flags(), options.model
    own_files = bool(options.scores or systems.system or model)
    if own_files and options.seeds > 1:
        raise ValueError(
            f"--seeds: found {options.seeds} beside --scores, --system or --model, expected 1: nothing is trained"
        )
    # What follows loads a language model and all that it needs.
    from prism_jax.experiments.paper import runner
    from prism_jax.experiments.paper.exported import Model
    from prism_jax.experiments.paper.study import PAPER, IntervalSettings
    from prism_jax.experiments.paper.trainings import Trainings
    from prism_jax.runs.store import Store

    costs: dict[str, Any] = {name: options[name].value for name in ("c_fa", "c_fn", "margin")}
    set_costs = {name: value for name, value in costs.items() if options[name].present}
    few = systems.system and not options["resamples"].present
    store = Store(folder / "trainings")
    call = runner.Inputs(
        scores=options.scores,
        systems=systems,
        model=None if model is None else Model(model, options.streams, set_costs),
        held_out=options.held_out,
        trainings=() if own_files else tuple(Trainings(store, seed) for seed in range(options.seeds)),
        point=dataclasses.replace(PAPER, **costs),
        settings=IntervalSettings(resamples=10_000 if few else options.resamples, seeds=options.seeds),
        running=Running.of_flags(),
        method=options.method,
        paper_numbers=options.paper_numbers,
        scores_paper=options.scores_paper,
    )
    with contextlib.nullcontext() if own_files else store.claimed():
        runner.run_experiments(names, call, folder)


def show_list(as_json: bool) -> None:
    """Prints every name with what it shows, what it needs and how long it takes."""
    rows = registry.listed()
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as `head` may end before the list
    print("usage: python -m prism_jax experiments NAME [--flags]; NAME --help lists its flags")
    print("       python -m prism_jax experiments main --scores=FILE --workdir=DIR   # one table of your own scores")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_all = "The paper's tables, all by the name `all` in 20 minutes"
        groups.setdefault(of_all if row["all"] else f"Studies: {row['command']} NAME", []).append(row)
    for title, group in groups.items():
        print(f"\n{title}\n")
        lines = [("name", "takes", "needs", "shows")] + [
            (row["name"], row["takes"], " ".join(f"--{flag}" for flag in row["needs"]), row["shows"]) for row in group
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            print("  ".join(["", *(f"{cell:{width}s}" for cell, width in zip(line, widths, strict=True))]).rstrip())


def start(argv: list[str]) -> None:
    """Starts what the first argument names, with the flags that it has."""
    if {"--list", "--json"} & set(argv[1:]):
        show_list("--json" in argv)
        return
    outside = registry.of_checkout()
    moved = {name: name for name in outside}
    moved |= {part: f"{name} --of={part}" for name, study in outside.items() for part in study.parts}
    known = {"all", *registry.EXPERIMENTS, *registry.STUDIES, *moved}
    name = next((argument for argument in argv[1:] if argument in known), "")  # later ones may be folders of this name
    if name in moved:
        sys.exit(f"error: experiment: found {name!r}, which is run by `python -m studies {moved[name]}`")
    if name not in registry.STUDIES:
        define_flags()
        if name:  # else it is said that there is no such table
            flags.mark_flag_as_required("workdir")
        command.start(main, arguments=f"all or one of {', '.join((*registry.EXPERIMENTS, *registry.STUDIES))}")
        return
    by_name.start(f"prism_jax.experiments.{name}", registry.STUDIES[name])


if __name__ == "__main__":
    start(sys.argv)
