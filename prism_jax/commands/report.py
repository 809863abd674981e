"""Compares several runs on one page.

    python -m prism_jax report --runs=RUN,RUN,... --out=index.html

Each RUN is a folder that holds evaluation.json and report.html, from a training run or from `evaluate`. The page
links to the reports by paths relative to its own folder. It computes nothing anew: its numbers are those of the
reports.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags
from etils import epath

from prism_jax.report.numbers import DASH, number, percent
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.templates import load_template
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.files import check_folder_of, check_outputs, check_regular, parse_json, read_bounded, write_text

COLUMNS: tuple[tuple[Column, Callable[[Mapping[str, Any]], str]], ...] = (
    (Column("policy", "The deployed policy."), lambda run: _policy(run)),
    (Column("C_FA", "Cost of an offer that is not accepted."), lambda run: f"{run['point']['c_fa']:g}"),
    (Column("C_FN", "Cost of silence where help was needed and wanted."), lambda run: f"{run['point']['c_fn']:g}"),
    (Column("steps", "Judged steps of the test split."), lambda run: str(run["counts"]["judged"])),
    (Column("gold", "Share of judged steps that are gold.", "%"), lambda run: percent(run["counts"]["positive"])),
    (Column("realised cost", "Mean realised cost per judged step."), lambda run: _cost(run)),
    (Column("gap closed", "Share of the cost gap to Bayes.", "%"), lambda run: percent(_deployed(run)["gap_closed"])),
    (Column("offers", "Share of steps with an offer.", "%"), lambda run: percent(_deployed(run)["speak_rate"])),
    (Column("slow", "Share of steps thought about.", "%"), lambda run: percent(_deployed(run)["slow_rate"])),
    (Column("recall", "TP / (TP + FN).", "%"), lambda run: percent(_deployed(run)["recall"])),
    (Column("false alarm", "FP / (TP + FP).", "%"), lambda run: percent(_deployed(run)["false_alarm"])),
    (Column("ECE need", "Of the calibrated fast signal."), lambda run: _ece(run, "need")),
    (Column("ECE accept", "Of the calibrated fast signal."), lambda run: _ece(run, "accept")),
)


FILES = ("evaluation.json", "report.html")
"""What is read of a run, or linked."""


def write_index(path: str | os.PathLike[str], runs: Sequence[str]) -> Table:
    """Writes the index page atomically, and returns the table on it.

    Each run is a folder that holds evaluation.json and report.html; rows are in their order.

    Raises:
      ValueError: for no folder, a folder named twice, or an evaluation.json without what the table shows.
      FileNotFoundError: for a folder without one of the two files.
    """
    if not runs:
        raise ValueError("runs: found none, expected at least one folder")
    if repeated := next((run for place, run in enumerate(runs) if run in runs[:place]), None):
        raise ValueError(f"runs: found {repeated} twice, expected each folder once")
    check_folder_of(path)
    check_outputs({"out": path}, {"runs": [epath.Path(run) / name for run in runs for name in FILES]})
    cells = [_cells(epath.Path(run)) for run in runs]
    comparable = len({(row[1], row[2], row[3], row[4]) for row in cells}) == 1
    note = (
        "All runs have the same costs and as many judged and gold steps."
        if comparable
        else "The runs differ in costs, or in judged or gold steps, so their realised costs are not comparable."
    )
    rows = tuple(Row(run, row) for run, row in zip(runs, cells, strict=True))
    table = Table("Deployed policies", "run", tuple(column for column, _ in COLUMNS), (Section("", rows),), note)
    folder = epath.Path(path).parent
    links = [(run, _link(epath.Path(run) / "report.html", folder)) for run in runs]
    write_text(path, load_template("index.html.jinja").render(table=table, links=links))
    return table


def _cells(run: epath.Path) -> tuple[str, ...]:
    place = run / "evaluation.json"
    expected = "a folder that `python -m prism_jax evaluate` wrote"
    evaluation = parse_json(read_bounded(place, expected=expected), str(place))
    check_regular(run / "report.html", expected=expected)
    try:
        return tuple(cell(evaluation) for _, cell in COLUMNS)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__} {error}".strip()
        raise ValueError(f"{place}: found {reason} while reading, expected what `evaluate` writes") from None


def _policy(run: Mapping[str, Any]) -> str:
    from prism_jax.evaluation.policy_rows import ALL_POLICIES  # more than the flags need

    return ALL_POLICIES[_deployed(run)["policy"]].label


def _deployed(run: Mapping[str, Any]) -> Mapping[str, Any]:
    deployed = [row for row in run["policies"] if row["deployed"]]
    if not deployed:
        raise ValueError("no deployed policy")
    return deployed[0]


def _cost(run: Mapping[str, Any]) -> str:
    """The realised cost with its interval, where there is one."""
    row = _deployed(run)
    low, high = row["realised_low"], row["realised_high"]
    interval = "" if low is None or high is None else f" [{number(low)}, {number(high)}]"
    return number(row["realised_cost"]) + interval


def _ece(run: Mapping[str, Any], signal: str) -> str:
    values = [
        row["ece"]
        for row in run["signals"]
        if (row["signal"], row["thinking"], row["form"]) == (signal, "fast", "calibrated")
    ]
    return number(values[0], 3) if values else DASH


def _link(report: epath.Path, folder: epath.Path) -> str:
    """A report's address relative to the folder of the index; a path of a bucket is named as it is."""
    if "://" in report.as_posix() or "://" in folder.as_posix():
        return report.as_posix()
    relative = os.path.relpath(os.fspath(report), os.fspath(folder))
    return urllib.parse.quote(f"./{relative}")


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_list("runs", None, "Folders of the runs to compare, separated by commas.")
    flags.DEFINE_string("out", "index.html", "Page to write.")
    flags.mark_flag_as_required("runs")
    refuse_empty("out")


def main() -> None:
    """Runs what the flags say."""
    print_all([write_index(flags.FLAGS.out, flags.FLAGS.runs)])
    print(f"index: {flags.FLAGS.out}")


if __name__ == "__main__":
    define_flags()
    command.start(main)
