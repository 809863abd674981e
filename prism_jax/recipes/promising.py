"""Promises about a scores file of any agent: what is certified, and what the test split says about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prism_jax.decision import risk
from prism_jax.decision.calibration import CalibrationConfig, Calibrator
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import read_calibration
from prism_jax.evaluation.promises import Line, PromiseResult, promise
from prism_jax.report.human_labels import shown
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.tables import DASH, percent
from prism_jax.runtime.files import write_json
from prism_jax.scores import ScoresError, located, read_scores

NAMES = {"betting": "betting", "hoeffding_bentkus": "Hoeffding and Bentkus", "expectation": "in expectation"}


def promise_scores(
    path: str,
    texts: Sequence[str],
    point: OperatingPoint,
    *,
    level: float,
    calibrator: Calibrator | None = None,
    calibration: str | None = None,
    start: float | None = None,
    out: str | None = None,
) -> None:
    """Prints the gates that keep promises, and writes them to a file where asked.

    Args:
      path: The scores file, .parquet or .jsonl (docs/scores.md).
      texts: Promises such as "false_alarms<=0.05", kept together.
      point: The policy, and the costs to which the gate comes as near as the promises allow.
      level: The probability 1 - eta with which they hold.
      calibrator: The map to fit; None is one temperature per signal.
      calibration: Path of a calibration.json fitted on other people, instead.
      start: Cost ratio at which the tests of false discovery begin.
      out: Path of a JSON file for the result.

    Raises:
      ValueError: naming the place, for promises, scores or a calibration that cannot be used.
      OSError: for a file that cannot be read.
    """
    if calibrator is not None and calibration is not None:
        raise ValueError("--calibrator: found it with --calibration, expected one of them")
    promises = [risk.Promise.parse(text) for text in texts]
    fits = None if calibration is None else read_calibration(calibration).pooled()
    config = None if calibrator is None else CalibrationConfig(calibrator)
    try:
        found = promise(
            read_scores(path), promises, point, error=1 - level, config=config, calibration=fits, start=start
        )
    except ScoresError as error:
        raise located(error, path) from None
    print_all([promise_table(found, point)])
    for sentence in sentences(found):
        print(sentence)
    if out is not None:
        write_json(out, as_dict(found, point))


def promise_table(found: PromiseResult, point: OperatingPoint) -> Table:
    """One row per bound; the first one promises, the others stand beside it."""
    columns = (
        Column("certified ratios", "Cost ratios C_FN / C_FA of the gates that keep all promises.", text=True),
        Column("chosen ratio", "The certified ratio nearest to that of the stated costs."),
        Column("speak rate, certifying", "Share of steps with an offer at it, mean over the certifying units.", "%"),
        Column("speak rate, test", "The same over the test units.", "%"),
        *(
            Column(f"{one.risk}, test", f"Measured on the test units; the limit is {one.limit:g}.")
            for one in found.promises
        ),
    )
    rows = tuple(Row(NAMES[line.bound], _cells(line, found), strong=line is found.lines[0]) for line in found.lines)
    words = ", ".join(map(str, found.promises))
    halves = f"; the other half of the calibration {_plural(found)} fitted the maps" if found.halves else ""
    left_out = found.certifying.unjudged + found.test.unjudged
    note = (
        f"Certified on {found.certifying.number} {_plural(found)}{halves}; measured on {found.test.number} of the test "
        f"split, with 95 % intervals over them. Policy {point.policy}, fast pass; stated ratio {point.cost_ratio:g}."
        + (f" {left_out} steps without both labels are left out." if left_out else "")
    )
    title = f"{words}, with probability {1 - found.error:g}"
    return Table(title, "bound", columns, (Section("", rows),), note, mark="the promise")


def sentences(found: PromiseResult) -> list[str]:
    """What to deploy, or what can be promised instead."""
    line = found.lines[0]
    number, units = found.certifying.number, _plural(found)
    if line.chosen is not None:
        return [
            f"Deploy --c_fa=1 --c_fn={line.chosen!r} --margin=0: with probability {1 - found.error:g}, all certified "
            "ratios keep the promise at once. It does not cover other policies, slow margins or maps chosen afterwards."
        ]
    said = [
        f"Nothing can be promised with {number} {units}: no tested gate keeps {', '.join(map(str, found.promises))}."
    ]
    share = found.error / len(found.promises)
    smallest = math.ceil(1e4 * risk.smallest_limit(number, share)) / 1e4
    if min(one.limit for one in found.promises) < smallest:
        said.append(f"The smallest limit that {number} {units} can promise, without a single loss, is {smallest:.4f}.")
    elif len(found.promises) > 1:
        said.append(
            f"{number} {units} could promise each limit from {smallest:.4f} on by itself, without a single loss: the "
            "gates that keep one of these break another, or are too close to a limit."
        )
    else:
        said.append(
            f"Without a single loss, {number} {units} could promise {smallest:.4f}; these losses are too large."
        )
    if any(one.grows is None for one in found.promises):
        said.append("The tests of false_discovery begin at --start; at another start, fixed beforehand, they may pass.")
    return said


def as_dict(found: PromiseResult, point: OperatingPoint) -> dict[str, Any]:
    """The result as JSON values."""
    return {
        "promises": list(map(str, found.promises)),
        "probability": 1 - found.error,
        "unit": found.unit,
        "certifying_units": found.certifying.number,
        "test_units": found.test.number,
        "maps_from_other_half": found.halves,
        "policy": point.policy,
        "stated_ratio": point.cost_ratio,
        "bounds": {line.bound: _line_dict(line) for line in found.lines},
    }


def _line_dict(line: Line) -> dict[str, Any]:
    risks = {
        one.risk: value and {"mean": float(value.estimate), "low": float(value.low), "high": float(value.high)}
        for one, value in line.test_risks.items()
    }
    return {**line._asdict(), "certified": list(line.certified), "test_risks": risks}


def _cells(line: Line, found: PromiseResult) -> tuple[str, ...]:
    if line.chosen is None:
        return ("none", *[DASH] * (3 + len(found.promises)))
    low, high = line.certified[0], line.certified[-1]
    measured = (line.test_risks[one] for one in found.promises)
    risks = (DASH if value is None else shown(value) for value in measured)
    return (
        f"{low:.3g} to {high:.3g}",
        f"{line.chosen:.4g}",
        percent(line.speak_rate),
        percent(line.test_speak_rate),
        *risks,
    )


def _plural(found: PromiseResult) -> str:
    return "people" if found.unit == "person" else "streams"
