"""Promises about a scores file of any agent: what is certified, and what the test split says about it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from typing import Any

from prism_jax.decision import risk
from prism_jax.decision.calibration import OF_SCORES, CalibrationConfig, Calibrator
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.score_maps import Scale
from prism_jax.evaluation.answers.columns import LogColumns, LogError, parse_columns
from prism_jax.evaluation.answers.log_scores import scale_of_log, scores_of_log
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.evaluation.answers.measures import auroc
from prism_jax.evaluation.fits import read_calibration
from prism_jax.evaluation.intervals import known
from prism_jax.evaluation.merged.promising import promise
from prism_jax.evaluation.merged.running import over
from prism_jax.evaluation.promise_units import Family
from prism_jax.evaluation.promises import Line, PromiseResult, Wanted
from prism_jax.report.answers.sentences import promised
from prism_jax.report.numbers import DASH, number, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.tables import over_units
from prism_jax.runs.running import Running
from prism_jax.runs.scores_files import of_records, refuse_records, say_left_out, shown_offers
from prism_jax.runs.sharded import held_in_memory, open_sharded
from prism_jax.runtime.command import check_together
from prism_jax.runtime.files import check_folder_of, check_outputs, write_json
from prism_jax.scores import Scores, ScoresError, located
from prism_jax.scores.files import holds_records
from prism_jax.scores.joining import find_files, read_files

NAMES = {"betting": "betting", "hoeffding_bentkus": "Hoeffding and Bentkus", "expectation": "in expectation"}


def families_of(policies: Sequence[str], margins: Sequence[float]) -> tuple[Family, ...]:
    """Every policy with every slow margin; a policy other than dynamic, which has none, is one family without a margin.

    ValueError for a margin above 0 where no policy has one.
    """
    if "dynamic" not in policies and any(margins):
        raise ValueError(f"--margin: found it with --policy={policies[0]}, expected it with dynamic: no other has one")
    return tuple(
        Family(policy, margin) for policy in policies for margin in (margins if policy == "dynamic" else [0.0])
    )


def promise_scores(
    path: str,
    texts: Sequence[str],
    point: OperatingPoint,
    *,
    level: float,
    families: Sequence[Family] = (),
    calibrator: Calibrator | None = None,
    calibration: str | None = None,
    start: float | None = None,
    test_share: float = 0.0,
    columns: Sequence[str] | None = None,
    time_format: str | None = None,
    shown_only: bool = False,
    out: str | None = None,
    running: Running | None = None,
) -> None:
    """Prints the gates that keep promises, and writes them to a file where asked.

    Args:
      path: The scores (docs/scores.md): a file, .parquet or .jsonl, a folder of them or a glob; or with `columns` a log
        of answers, .csv or .parquet.
      texts: Promises such as "false_alarms<=0.05", kept together.
      point: The costs to which the gate comes as near as the promises allow.
      level: The probability 1 - eta with which they hold, for all families at once.
      families: The policies and slow margins; none is the policy of `point` without a margin.
      calibrator: The map to fit to each signal; None is `OF_SCORES`.
      calibration: A calibration.json fitted on other people, instead.
      start: Cost ratio at which the tests of false discovery and dismissals begin.
      test_share: Share of the people to measure and not to certify on, of scores without splits, or with a calibration
        of the split test.
      columns: ROLE=COLUMN parts of a log (docs/acceptance_logs.md): person, accepted and a score.
      time_format: How its dates such as 3/4/2026 are read (`written_times.TIME_FORMATS`).
      shown_only: Leaves out the offers that were not made; the promise is then about shown offers only.
      out: JSON file for the result.
      running: How scores files are read; more than `running.MOST_EXACT_ROWS` rows are read part by part.

    Raises:
      ValueError: naming the place, for promises, scores or a calibration that cannot be used.
    """
    check_together(
        "calibrator with calibration: one of them",
        "time_format without columns: both, of a log",
        options={"calibrator": calibrator, "calibration": calibration, "time_format": time_format, "columns": columns},
    )
    promises = [risk.Promise.parse(text) for text in texts]
    fits = None if calibration is None else read_calibration(calibration).pooled()
    config = CalibrationConfig(calibrator or OF_SCORES)
    wanted = Wanted(promises, point, 1 - level, tuple(families) or (Family(point.policy),), start)
    running = Running() if running is None else running
    how: dict[str, Any] = {"config": config, "calibration": fits, "test_share": test_share}
    scores, scale, column, days = None, Scale(), "p_accept_fast", False
    left_out: dict[str, str] = {}
    try:
        paths = [path] if columns else find_files(path)
        if out is not None:
            check_folder_of(out)
            check_outputs({"out": out}, {"scores": paths, "calibration": calibration})
        if columns is None and not held_in_memory(paths, running):
            result, left_out = _of_parts(paths, wanted, running, shown_only=shown_only, **how)
        else:
            if columns is not None:
                scores, scale, column = _read_log(path, parse_columns(columns, time_format), shown_only=shown_only)
            else:
                scores = read_files(paths, left_out=left_out if running.skip_bad else None)
                if records := next((file for file in paths if file not in left_out and holds_records(file)), None):
                    scores, days = of_records(records, scores, calibrated=True)
                scores = shown_offers(path, scores) if shown_only else scores
            result = promise(over([scores]), wanted, exact=True, **how)
            if days or (columns is not None and scores.person is None):
                result = result._replace(unit="day")
    except ScoresError as error:
        raise located(error, path) from None
    print_all([promise_table(result, point)])
    if shown_only:
        print("The promise is about offers that the log shows only: what was not shown is left out.")
    if (
        columns
        and scores
        and scores.y_accept is not None
        and (rank := auroc(scores.p_accept_fast, scores.y_accept)) < 0.5
    ):
        print(
            f"A higher {column} goes with fewer acceptances in this log (AUROC {rank:.2f}), but the gates offer from a "
            "score upwards: promise on a column of the opposite sign."
        )
    on_score = _on_score(result, scale, column)
    for sentence in [*sentences(result), *on_score.get("sentences", [])]:
        print(sentence)
    if out is not None:
        write_json(out, as_dict(result, point) | {"on_score": on_score or None})
    say_left_out(left_out, len(paths))


def _of_parts(
    paths: Sequence[str], wanted: Wanted, running: Running, *, shown_only: bool, **how: Any
) -> tuple[PromiseResult, dict[str, str]]:
    """The result for scores files that are read part by part, and the files that were left out with the reasons."""
    refuse_records(paths)
    with tempfile.TemporaryDirectory(prefix="prism_jax_") as folder:
        sharded = open_sharded(paths, folder, running, shown_only=shown_only)
        result = sharded.all_of(lambda run: promise(run, wanted, exact=running.are_few(run.rows), **how))
        return result, sharded.left_out


def _on_score(result: PromiseResult, scale: Scale, column: str) -> dict[str, Any]:
    """The chosen gate as a rule on the user's own score; empty where nothing is certified, or need decides as well."""
    gate = None if result.chosen is None else result.chosen.gate
    return {} if gate is None or result.accept_map is None else promised(result.accept_map, gate.ratio, scale, column)


def _read_log(path: str, columns: LogColumns, *, shown_only: bool) -> tuple[Scores, Scale, str]:
    """A log of answers as a scores table; where asked, without the offers that were not made.

    Beside it, how the user's score became its p_accept_fast, and the name of the score's column.
    """
    log = read_log(path, columns, one_person=True)
    if log.unit == "answers":
        raise LogError(
            f"{path}: found answers of one person, expected time=COLUMN with several days of theirs, or more people: a "
            "promise is about independent days or people, and answers of a day are not"
        )
    silent = int((~log.logged).sum())
    if silent and not shown_only:
        raise LogError(
            f"{path}: found {silent} of {len(log)} offers that were not made, expected none, or --shown_only, which "
            "leaves them out: nobody knows their answers"
        )
    scores = scores_of_log(log.shown(), None)  # a gate on it is a gate on the score
    return scores, scale_of_log(log.shown()).in_unit(columns.score_unit), columns.score_name or ""


def promise_table(result: PromiseResult, point: OperatingPoint) -> Table:
    """One row per family and bound; the first bound promises, the others stand beside it."""
    thinks = any(family.margin for family in result.families)
    columns = (
        Column("certified ratios", "Cost ratios C_FN / C_FA of the gates that keep all promises.", text=True),
        Column("chosen ratio", "The certified ratio nearest to that of the stated costs."),
        Column("cost", "Realised cost at it at the stated costs, mean over the certifying units."),
        Column("speak rate", "Share of steps with an offer at it, mean over the certifying units.", "%"),
        *([Column("slow passes", "Share of steps with a slow pass at it, the same.", "%")] if thinks else []),
        *([] if result.test is None else [Column("speak rate, test", "The same over the test units.", "%")]),
        *(
            Column(f"{promise.risk}, test", f"Measured on the test units; the limit is {promise.limit:g}.")
            for promise in (() if result.test is None else result.promises)
        ),
    )
    several = len(result.families) > 1
    sections = [
        Section(
            str(family) if several else "",
            tuple(
                Row(NAMES[line.bound], _cells(line, result, thinks, len(columns)), strong=line is result.chosen)
                for line in result.lines
                if line.family == family
            ),
        )
        for family in result.families
    ]
    title = f"{', '.join(map(str, result.promises))}, with probability {1 - result.error:g}"
    title += f" for all {len(result.families)} families at once" if several else ""
    return Table(title, "bound", columns, tuple(sections), _note(result, point), mark="the promise")


def _note(result: PromiseResult, point: OperatingPoint) -> str:
    """Which units did what, and for what the promise stands."""
    units = _plural(result)
    note = f"Certified on {result.certifying.number} {units}"
    note += f"; the other half of the calibration {units} fitted the maps" if result.halves else ""
    if result.test is None:
        note += "; no others are left to measure on"
    else:
        note += f"; measured on others, {over_units(result.test.number, units)}"
    if len(result.families) > 1:
        note += f". Stated ratio {point.cost_ratio:g}."
    else:
        family = result.families[0]
        passes = f"slow margin {family.margin:g}" if family.margin else "fast pass"
        note += f". Policy {family.policy}, {passes}; stated ratio {point.cost_ratio:g}."
    if result.folds:
        note += (
            " The scores have folds: where every fold was scored by a model of its own, the promise is approximate, "
            "and about these models together."
        )
    left_out = result.certifying.unjudged + (0 if result.test is None else result.test.unjudged)
    note += " One person answered: this is about new days of theirs, if days are independent." * (units == "days")
    return note + (f" {left_out} steps without both labels are left out." if left_out else "")


def sentences(result: PromiseResult) -> list[str]:
    """What to deploy, or what can be promised instead."""
    if result.chosen is not None and result.chosen.gate is not None:
        return [_deployed(result, result.chosen, result.chosen.gate.ratio), *_starts(result)]
    count, units, families = result.certifying.number, _plural(result), len(result.families)
    of = f" of {families} families" if families > 1 else ""
    promises = ", ".join(map(str, result.promises))
    lines = [f"Nothing can be promised with {count} {units}: no tested gate{of} keeps {promises}."]
    share = result.error / (len(result.promises) * families)
    smallest = math.ceil(1e4 * risk.smallest_limit(count, share)) / 1e4
    if min(promise.limit for promise in result.promises) < smallest:
        lines.append(f"The smallest limit that {count} {units} can promise, without a single loss, is {smallest:.4f}.")
    elif len(result.promises) > 1:
        lines.append(
            f"{count} {units} could promise each limit from {smallest:.4f} on by itself, without a single loss: the "
            "gates that keep one of these break another, or are too close to a limit."
        )
    elif result.promises[0] not in result.passing:
        lines.append(
            f"Without a single loss, {count} {units} could promise {smallest:.4f}; these losses are too large."
        )
    return [*lines, *_starts(result), *(_smallest_passing(result, promise) for promise in result.passing)]


def _starts(result: PromiseResult) -> list[str]:
    """That the default start cannot certify a policy, where it is none for it and nothing of it is certified."""
    silent = [line.family.policy for line in result.lines if line.bound == "betting" and line.gate is None]
    policies = [name for name in result.too_talkative if name in silent]
    if not policies:
        return []
    return [
        "The default start of false_discovery, the ratio limit / (1 - limit), keeps the limit at every offer for the "
        f"policy product only. A calibrated gate of {', '.join(policies)} may break it there, and its first test then "
        "fails: give another start with --start, fixed beforehand or on other people."
    ]


def _smallest_passing(result: PromiseResult, promise: risk.Promise) -> str:
    """Which limit would have passed the first test."""
    limit, units = result.passing[promise], _plural(result)
    start = "limit / (1 - limit)" if result.start is None else f"{result.start:g}"
    if limit is None:
        return f"No limit of {promise.risk} up to 0.99 passes its first test on these {units}, at the start {start}."
    return (
        f"The smallest limit of {promise.risk} that would pass on these {units} is {limit:g}, at the start "
        f"{start}. Read off the same units, it is no promise: state it for others."
    )


def _deployed(result: PromiseResult, line: Line, ratio: float) -> str:
    """The flags of the agent, and what the promise covers."""
    policy = "" if len(result.families) == 1 else f"--policy={line.family.policy} "
    deploy = f"Deploy {policy}--c_fa=1 --c_fn={ratio!r} --margin={line.family.margin:g}: "
    sure = f"with probability {1 - result.error:g}, all certified ratios"
    if len(result.families) == 1:
        return (
            f"{deploy}{sure} keep the promise at once. It does not cover other policies, other slow margins or maps "
            "chosen afterwards."
        )
    return (
        f"{deploy}{sure} of all {len(result.families)} families keep the promise at once, so this one could be chosen "
        f"for its cost on the same {_plural(result)}. The promise does not cover other policies, other slow margins or "
        "maps chosen afterwards."
    )


def as_dict(result: PromiseResult, point: OperatingPoint) -> dict[str, Any]:
    """The result as JSON values."""
    chosen = result.chosen
    return {
        "promises": list(map(str, result.promises)),
        "probability": 1 - result.error,
        "unit": result.unit,
        "certifying_units": result.certifying.number,
        "test_units": 0 if result.test is None else result.test.number,
        "maps_from_other_half": result.halves,
        "folds_together": result.folds,
        "stated_ratio": point.cost_ratio,
        "chosen": chosen
        and chosen.family._asdict() | {"bound": chosen.bound, "ratio": chosen.gate and chosen.gate.ratio},
        "families": [
            family._asdict()
            | {"bounds": {line.bound: _line_dict(line) for line in result.lines if line.family == family}}
            for family in result.families
        ],
    }


def _line_dict(line: Line) -> dict[str, Any]:
    """One bound of one family."""
    gate: dict[str, Any] | None = None
    if line.gate is not None:
        gate = line.gate._asdict()
        gate["test_risks"] = {
            str(promise): value and {"mean": float(value.value), "low": known(value.low), "high": known(value.high)}
            for promise, value in line.gate.test_risks.items()
        }
    return {"certified": list(line.certified), "gate": gate}


def _cells(line: Line, result: PromiseResult, thinks: bool, number_of_cells: int) -> tuple[str, ...]:
    if line.gate is None:
        return ("none", *[DASH] * (number_of_cells - 1))
    gate, (low, high) = line.gate, (line.certified[0], line.certified[-1])
    risks = (gate.test_risks[promise] for promise in (() if result.test is None else result.promises))
    return (
        f"{low:.3g} to {high:.3g}",
        f"{gate.ratio:.4g}",
        number(gate.cost, 3),
        percent(gate.speak_rate),
        *([percent(gate.slow_rate)] if thinks else []),
        *([] if gate.test_speak_rate is None else [percent(gate.test_speak_rate)]),
        *(DASH if value is None else show_estimate(value) for value in risks),
    )


def _plural(result: PromiseResult) -> str:
    return "people" if result.unit == "person" else f"{result.unit}s"
