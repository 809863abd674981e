"""The flags of the study, and what each of its parts takes and makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from absl import flags

from prism_jax.decision.risk import Promise
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.logs import AcceptanceLog, read_log
from prism_jax.report.table import Table
from prism_jax.runtime.command import check_together
from studies.coverage import alarms, intervals, off_policy, promises, recalibration


class Part(NamedTuple):
    """One estimator and what is drawn for it."""

    takes: str  # how long it takes on two idle cores
    tables: Callable[[AcceptanceLog | None, str, Any], Iterable[Table]]  # of a log, its name, and the flags
    flags: tuple[str, ...] = ()  # those that it has beside --of and --workdir
    roles: tuple[str, ...] = ()  # those of --columns that it reads


def _counterfactual(log: AcceptanceLog | None, name: str, options: Any) -> list[Table]:
    if log is None:
        raise ValueError("--log: found none, expected an acceptance log in which every offer was answered")
    return off_policy.log_tables(log, sorted(options.units) or [20, 50, 100, 200], options.times or 2000)


def _promises(log: AcceptanceLog | None, name: str, options: Any) -> list[Table]:
    if (log is None) == (options.source is None):
        raise ValueError("--log, --source: expected exactly one of them")
    steps = promises.of_proactivebench(options.source, options.data_dir) if log is None else promises.of_log(log, name)
    return [promises.table(steps, [*map(Promise.parse, options.promise)], options.units, options.times or 2000)]


def _alarms(log: AcceptanceLog | None, name: str, options: Any) -> list[Table]:
    if log is not None and options.times:
        raise ValueError("--times: found it with --log, expected it without: it is the number of simulated people")
    return [alarms.shift_table(options.times or 10_000) if log is None else alarms.log_table(log, name)]


def _recalibration(log: AcceptanceLog | None, name: str, options: Any) -> list[Table]:
    sections = recalibration.simulated_sections() if log is None else recalibration.log_sections(log)
    return [recalibration.table("Simulated people" if log is None else name, sections)]


LOG, ROLES = ("log", "columns"), ("person", "time", "accepted")
PARTS = {
    "few_units": Part("a minute", lambda *of: [intervals.table(of[-1].times or 2000)], ("times",)),
    "overlap": Part("10 minutes", lambda *of: [off_policy.design_table(of[-1].times or 2000)], ("times",)),
    "counterfactual": Part("minutes", _counterfactual, (*LOG, "units", "times"), (*ROLES, "score")),
    "promises": Part(
        "a minute", _promises, (*LOG, "source", "data_dir", "promise", "units", "times"), (*ROLES, "score")
    ),
    "alarms": Part("seconds", _alarms, (*LOG, "times"), ROLES),
    "recalibration": Part("seconds", _recalibration, LOG, ROLES),
}


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_enum("of", None, list(PARTS), "What is counted.", required=True)
    flags.DEFINE_string("log", None, "Acceptance log, .csv or .parquet.")
    flags.DEFINE_list("columns", [], "Its columns: person=NAME,time=NAME,accepted=NAME,score=NAME.")
    flags.DEFINE_string("source", None, "Of promises, instead of a log: folder with ProactiveBench's repository.")
    flags.DEFINE_string("data_dir", None, "Folder of its prepared copy; ~/tensorflow_datasets if unset.")
    flags.DEFINE_multi_string("promise", ["false_alarms<=0.1", "false_alarms<=0.2"], "RISK<=LIMIT; may be repeated.")
    flags.DEFINE_multi_integer("units", [], "Number of people or streams in a drawn log; may be repeated.", 2)
    flags.DEFINE_integer("times", None, "Number of samples of each number; 2,000, of alarms 10,000.", 10, 100_000)


def main() -> Iterable[Table]:
    """Draws, estimates and counts."""
    options, part = flags.FLAGS, PARTS[flags.FLAGS.of]
    for name in dict.fromkeys(flag for other in PARTS.values() for flag in other.flags):
        if options[name].present and name not in part.flags:
            having = " or ".join(of for of, other in PARTS.items() if name in other.flags)
            raise ValueError(f"--{name}: found it with --of={options.of}, expected --of={having}")
    check_together("columns without log: the log", "data_dir without source: the folder of the repository")
    if options.log is None:
        return part.tables(None, "", options)
    columns = parse_columns(options.columns)
    if unread := columns.roles().keys() - part.roles:
        raise ValueError(
            f"--columns: found {', '.join(sorted(unread))}, expected {', '.join(part.roles)} alone: "
            f"--of={options.of} reads no other role"
        )
    log = read_log(options.log, columns)
    return part.tables(log, options.log.rpartition("/")[2], options)
