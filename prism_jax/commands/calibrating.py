"""Asks what serves at labelled steps, fits its maps, and says what that is worth, or whether it still answers so."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from prism_jax.agent.asking import AskingReader
from prism_jax.agent.exported import Exported, read_exported
from prism_jax.agent.fitted import (
    Checked,
    Labelled,
    check,
    check_model,
    decisions_of,
    differing,
    distance,
    fitted_on,
    read_fitted,
    read_labelled,
)
from prism_jax.agent.loading import exported_model, load_engine, load_reader
from prism_jax.agent.reader import Reader
from prism_jax.agent.records import NOT_KEPT
from prism_jax.agent.records_streams import read_records
from prism_jax.agent.serving import (
    DEFAULT_ANSWERS,
    decision_model,
)
from prism_jax.decision.calibration import (
    IDENTITY_ROWS,
    OF_SCORES,
    CalibrationConfig,
    CalibrationWarning,
    in_words,
)
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.recalibration import FOLDS, Passed, Recalibrated, recalibrate
from prism_jax.gate import Gate
from prism_jax.report.numbers import number
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.tables import over_units
from prism_jax.runtime import command
from prism_jax.runtime.files import check_absent, check_folder_of, check_outputs
from prism_jax.scores import Scores, write_scores
from prism_jax.scores.files import check_suffix, holds_records
from prism_jax.scores.units import folds_of
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.shards import find_files

FEW = 200
"""Labels of a signal up to which it is said that there are few."""


def calibrate(options: Mapping[str, Any]) -> None:
    """Asks, fits, writes and prints. `options` has the values of the flags of `calibrate`, which go together."""
    _check_files(options)
    config, labels = CalibrationConfig(options["calibrator"] or OF_SCORES), options["labels"]
    streams, people = read_labels(labels)
    if any(event.text == NOT_KEPT for stream in streams for event in stream.events):
        raise ValueError(f"--labels: {labels}: found events without a text, expected records of --keep_texts")
    with contextlib.ExitStack() as stack:
        folder, exported = _exported(options, stack)
        gate = read_fitted(options["check"], find_files(labels)) if options["check"] else None
        # Which model a check is of is compared below, in words of its own.
        current = _current(options, exported) if gate is None else dataclasses.replace(gate, fitted=None)
        steps = [step for stream in streams for step in stream.steps]
        if gate is None and not any(
            step.y_need is not None or any(one.y_accept is not None for one in step.candidates) for step in steps
        ):
            current.save(options["out"])
            print(f"{labels}: found no label; {options['out']} leaves the probabilities as they are")
            return
        reader, model = _reader(options, folder, exported, current, stack)
        if gate is not None:
            check_model(gate, model, options["check"], options["decision_model"])
        if isinstance(reader, AskingReader):
            reader.ends = "always"
            reader.warm_up()  # compares an engine with the export
        # A check is an asking of its own, of which nothing is kept yet.
        attempts, flag = (0, 1) if gate is None else (time.time_ns(),), "engine" if options["engine"] else "decisions"
        askings = [_ask(reader, streams, attempt, flag) for attempt in attempts]
        if isinstance(reader, AskingReader):
            command.say(reader.sent)
        asked = askings[0]
        reasons = collections.Counter(asked.unanswered)
        for reason, count in reasons.most_common(5):
            command.say(f"steps without an answer, which are left out: {count} ({reason})")
        if len(reasons) > 5:
            command.say(f"steps that are left out in all: {reasons.total()}, for {len(reasons)} reasons")
        scores = _scores(asked.rows, people, current.need_target, labels)
        if gate is not None:
            return _print_check(check(gate, streams, asked, scores), gate, options["check"])
        if options["scores_out"]:
            write_scores(options["scores_out"], scores)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # of folds of few labels; the maps are printed
            counts = options["identity_rows"] or IDENTITY_ROWS
            found = recalibrate(scores, current.point, config, identity_rows=counts, current=current)
        of = model, find_files(labels), streams, askings, found.gate, found.figures
        fitted = fitted_on(*of, options["decision_model"])
        dataclasses.replace(found.gate, fitted=fitted).save(options["out"])
        print_all(tables(found))
        for line in lines(found):
            print(line)
        if options["engine"] and folder is not None and exported is not None:
            compare = options["compare"]
            if compare or (compare is None and any(folder.glob("*.safetensors"))):
                own = read_labelled(_own(folder, exported, options), streams)
                print(f"the engine's {_distance(asked, own, found.gate, streams, 'our own')}")
        print(f"asked again, {_distance(askings[1], asked, found.gate, streams, 'those of the first time')}")
        if reasons:
            print(f"fitted on {_answered(asked, len(steps))}")
    print(f"gate: {options['out']}")


def read_labels(labels: str) -> tuple[list[Stream], dict[str, str]]:
    """The streams of some files of streams or of records, in alphabetical order, and the people of those of records."""
    streams: dict[str, Stream] = {}
    people: dict[str, str] = {}
    for path in find_files(labels):
        if not Path(path).exists():
            raise ValueError(f"--labels: {path}: found no such file, expected streams with labels, or decision records")
        of_file, theirs = read_records(path) if holds_records(path) else (read_streams(path), {})
        if again := next((stream.id for stream in of_file if stream.id in streams), None):
            raise ValueError(f"--labels: {path}: found the stream {again!r} of another file, expected a new id")
        streams |= {stream.id: stream for stream in of_file}
        people |= theirs
    return list(streams.values()), people


def tables(found: Recalibrated) -> list[Table]:
    """What calibration changes, as tables."""
    rows = []
    for signal, gain in found.signals.items():
        fitted = getattr(found.gate, signal)
        cells = (gain.ece_before, gain.ece_after, gain.brier_before, gain.brier_after)
        rows.append(Row(f"p_{signal}", (str(gain.labels), *map(number, cells), in_words(fitted))))
    signals = Table(
        "Probabilities, out of fold",
        "signal",
        (
            Column("labels"),
            Column("ECE before", "Expected calibration error of the probabilities so far"),
            Column("ECE", "The same of calibrated ones, each fold by the map of the others"),
            Column("Brier before"),
            Column("Brier"),
            Column("map", "Of all labels together, as gate.json has it", text=True),
        ),
        (Section("", tuple(rows)),),
    )
    if found.change is None or found.before is None or found.after is None or found.passed is None:
        return [signals]
    costs = Table(
        f"Cost per judged step at C_FA = {found.gate.point.c_fa:g}, C_FN = {found.gate.point.c_fn:g}",
        "gate",
        (
            Column("cost", "With its interval", text=True),
            Column("wrong offers", "Share of the offers that it lets pass which are not accepted"),
            Column("withheld", "Share of the steps at which it is silent"),
        ),
        (
            Section(
                "",
                (
                    Row("before", (_interval(found.before), *_shares(found.passed[0]))),
                    Row("calibrated", (_interval(found.after), *_shares(found.passed[1]))),
                    Row("change", (_interval(found.change, sign=True), "", "")),
                ),
            ),
        ),
        f"{over_units(found.units, 'people or streams')}.",
    )
    return [signals, costs]


def lines(found: Recalibrated) -> list[str]:
    """What else there is to say, in sentences."""
    said = []
    few = {signal: gain.labels for signal, gain in found.signals.items() if gain.labels < FEW}
    if few:
        counted = ", ".join(f"{count} of p_{signal}" for signal, count in few.items())
        said.append(f"few labels ({counted}): the maps are drawn towards those so far")
    for signal, gain in found.signals.items():
        said += [f"p_{signal}: {line}" for line in gain.kinds.said(getattr(found.gate, signal))]
    if found.change is None:
        return [*said, "no step has both labels of what its cost depends on: no cost is known"]
    said.append(f"{found.flips} of {found.steps} decisions change, on {found.units} people or streams")
    if found.selected:
        said.append(
            "costs are those of the judged steps, by inverse propensity where there is one; others may differ, and "
            "without propensities a bias learns which steps were judged"
        )
    if not found.flips:
        return said
    if not np.isfinite(found.change.low):
        return [*said, "too few people or streams for an interval"]
    if found.change.high < 0:
        said.append("calibration saves: the interval of the change is below 0")
    elif found.change.low > 0:
        said.append("calibration costs more here: the interval of the change is above 0")
    elif found.enough is not None:
        said.append(
            "not shown to save: with a probability of 80 %, about {:,.0f} judged steps like these would show a saving "
            "as large as the interval allows, and {:,.0f} the one measured; no number would show one if calibration "
            "saves nothing, which the interval allows as well".format(*found.enough)
        )
    else:
        said.append(
            "not shown to save: no saving above its standard error, so how many labels would show one is unknown"
        )
    return said


def _check_files(options: Mapping[str, Any]) -> None:
    """An error, before anything is asked, for a file that could not be written then or would be written over."""
    outputs = {name: options[name] for name in ("out", "scores_out")}
    answers = {"answers": options["answers"] or DEFAULT_ANSWERS} if options["decisions"] is not None else {}
    check_outputs(
        outputs | answers,
        {"questions": options["questions"], "check": options["check"], "labels": find_files(options["labels"])},
    )
    for path in filter(None, outputs.values()):
        check_absent(path)
        check_folder_of(path)
    if options["scores_out"]:
        check_suffix(options["scores_out"])


def _exported(
    options: Mapping[str, Any], stack: contextlib.ExitStack
) -> tuple[epath.Path, Exported] | tuple[None, None]:
    """The export of --model; None for a decision model, which has none."""
    if options["decisions"] is not None:
        return None, None
    folder = stack.enter_context(exported_model(options["model"]))
    return folder, read_exported(folder, options["expect_digest"])


def _current(options: Mapping[str, Any], exported: Exported | None) -> Gate:
    """The gate so far: the export's own, or the probabilities as they are, at the costs that flags state."""
    names = ("c_fa", "c_fn", "policy")
    stated = {name: options[name] for name in names if options[name] is not None}
    if exported is None:
        return Gate(OperatingPoint(**stated))
    point = dataclasses.replace(exported.point, **stated)
    return Gate(point, exported.maps["accept_fast"], exported.maps["need_fast"], exported.need_target)


def _reader(
    options: Mapping[str, Any],
    folder: epath.Path | None,
    exported: Exported | None,
    current: Gate,
    stack: contextlib.ExitStack,
) -> tuple[Reader, str]:
    """The reader of what is asked, and the fingerprint of its model."""
    reader: AskingReader
    if folder is None or exported is None:
        reader, exported = decision_model(options, current, stack)
    elif options["engine"] is None:
        return _own(folder, exported, options), exported.fingerprints["model"]
    else:
        given = {name: options[name] for name in ("key", "deadline", "context") if options[name] is not None}
        said = {"name": options["model"], "report": command.say}
        reader = load_engine(folder, exported, options["engine"], **said, **given)
    stack.callback(reader.close)
    return reader, exported.fingerprints["model"]


def _own(folder: epath.Path, exported: Exported, options: Mapping[str, Any]) -> Reader:
    """Our own reader of the export."""
    settings = {name: options[name] for name in ("context", "compilation_cache")}
    return load_reader(folder, exported, name=options["model"], report=command.say, **settings)


def _scores(rows: list[dict[str, Any]], people: Mapping[str, str], need_target: str, place: str) -> Scores:
    """The scores table, with folds; who names nobody is a person of their own where others are named."""
    if not rows:
        raise ValueError(f"--labels: {place}: found no step with an answer, expected some")
    for row in rows:
        row["need_target"] = need_target
        if people:
            row["person"] = people.get(row["stream"], row["stream"])
    scores = Scores.from_rows(rows)
    return dataclasses.replace(scores, fold=folds_of(scores.stream, scores.person, FOLDS))


def _distance(first: Labelled, second: Labelled, gate: Gate, streams: Sequence[Stream], other: str) -> str:
    """How far the log-odds of two readings are apart, and how many decisions at the gate's costs that flips."""
    mean, most = distance(first, second)
    flips, steps = differing(*(decisions_of(one, gate, streams) for one in (first, second)))
    return (
        f"log-odds are {mean:.2g} away from {other} on average and {most:.2g} at most; {flips} of {steps} decisions of "
        "the written gate differ"
    )


def _answered(asked: Labelled, steps: int) -> str:
    """At how many steps there was an answer, and why there was none at others, in words."""
    reasons = collections.Counter(asked.unanswered)
    [(reason, count)] = reasons.most_common(1)
    total = reasons.total()
    why = reason if count == total else f"at {count} of them {reason}"
    return f"{steps - total} of {steps} steps, since {total} have no answer: {why}"


def _ask(reader: Reader, streams: Sequence[Stream], attempt: int, flag: str) -> Labelled:
    """One asking at all steps; ValueError where several models have answered, or most steps have no answer.

    A gate of the minority would be one of the steps that a server happens to take; a check counts lost answers itself.
    """
    if not isinstance(reader, AskingReader):
        return read_labelled(reader, streams)
    reader.attempt = attempt
    asked = read_labelled(reader, streams)
    steps, missing = sum(len(stream.steps) for stream in streams), sum(asked.unanswered.values())
    if reader.mixed:
        command.say(reader.sent)
        raise ValueError(f"--decisions: {reader.mixed[0]}, and no map fits them; another --answers asks anew")
    if 2 * missing > steps and (attempt == 0 or missing == steps):
        command.say(reader.sent)
        raise ValueError(f"--{flag}: found answers at {_answered(asked, steps)}, expected them at half of the steps")
    return asked


def _print_check(found: Checked, gate: Gate, path: str) -> None:
    """Says how a check went; ValueError, of which the command fails, where the gate no longer fits."""
    assert gate.fitted is not None, "it was checked"
    again = gate.fitted["again"]
    print(
        f"{found.flips} of {found.steps} decisions flip; {again['flips']} of {again['steps']} did between two askings"
    )
    if found.change is not None:
        print(f"change of the cost per judged step: {_interval(found.change, sign=True)}")
    apart = again["log_odds"][0]
    if found.moved is not None:
        moved = ", ".join(f"p_{signal} {by:+.2g}" for signal, by in found.moved.items())
        print(f"mean log-odds moved since the fit: {moved}; two askings differed by {apart:.2g} on average")
    if found.failures:
        raise ValueError(f"--check: {path}: {'; '.join(found.failures)}; fit it again")
    if found.moved is None:
        why = "other steps have an answer" if gate.fitted.get("log_odds") else "this file does not hold them"
        print(f"{path}: the model decides as when it was fitted; how far its log-odds moved is unknown, as {why}")
    elif max(map(abs, found.moved.values())) > apart:
        print(
            f"{path}: the model decides about as when it was fitted, but its log-odds moved by more than two askings "
            "differed: its probabilities are no longer those that the maps were fitted on, so fit it again"
        )
    else:
        print(f"{path}: the model answers as when it was fitted")


def _shares(of: Passed) -> tuple[str, str]:
    return ("none" if np.isnan(of.wrong) else f"{of.wrong:.1%}", f"{of.withheld:.1%}")


def _interval(of: Estimate, *, sign: bool = False) -> str:
    if not np.isfinite(of.low):
        return f"{number(float(of.value), sign=sign)} [no interval]"
    ends = f"{number(float(of.low), sign=sign)}, {number(float(of.high), sign=sign)}"
    return f"{number(float(of.value), sign=sign)} [{ends}]"
