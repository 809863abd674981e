"""Measures and tables of the ProactiveBench study: out-of-fold signals, pooled over folds.

Fold 0 is reported separately, because the settings were chosen on its other streams, which the other folds test.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.intervals import known
from prism_jax.evaluation.splits import TEST, rows_of
from prism_jax.experiments.annotators import against_votes, need_against_others, votes_against_votes
from prism_jax.experiments.intervals import show_interval
from prism_jax.experiments.ranking import MEASURES, Ranked, intervals
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runtime.files import parse_json, read_lines
from prism_jax.scores import Scores
from prism_jax.scores.joining import joined
from prism_jax.scores.labels import Signal, read
from prism_jax.streams import Stream

SIGNALS: tuple[Signal, ...] = ("accept", "need")
PARTS = {"folds from 1 on": slice(1, None), "fold 0": slice(0, 1), "all folds": slice(None)}
NAMES = {
    "student": "SmolLM2-135M, upper blocks trained (not nested)",
    "words": "TF-IDF and simple features, logistic regression",
    "tiny": "tiny student",
    "annotator": "one annotator, against the others",
    "single votes": "SmolLM2-135M, against single votes",
}
COLUMNS = (
    Column("AUROC, pooled", "Over all pairs of a positive and a negative label."),
    Column("AUROC, within streams", "Over the pairs within one stream."),
    Column("Brier", "Mean of (p − y)² of the calibrated signal."),
    Column("ECE", "Expected calibration error of the calibrated signal, 15 bins of equal width."),
)
"""Headings of `MEASURES`."""


class Fold(NamedTuple):
    """Results of one method on one fold."""

    scores: Scores  # raw signals on the calibration and the test streams
    calibration: Calibration  # temperatures, fitted on the calibration streams
    seconds: tuple[float, ...] = ()  # duration of each training epoch in seconds; empty for a method without epochs


def signal_of(folds: Sequence[Fold], signal: Signal) -> Ranked:
    """Collects one signal on the test streams of some folds, on the rows whose label is known.

    The raw signal is the score, because temperatures differ between folds; the calibrated signal is the probability.
    """
    parts = []
    for fold in folds:
        rows = rows_of(fold.scores, TEST)
        readings = read(rows, signal, "fast")
        labelled = ~np.isnan(readings.y)
        p = fold.calibration.calibrated(signal, "fast", readings.rows)
        parts.append(
            Ranked(
                readings.p[labelled], p[labelled], readings.y[labelled], np.asarray(readings.rows.stream, str)[labelled]
            )
        )
    return Ranked.joined(parts)


def aurocs(folds: Sequence[Fold]) -> dict[str, float]:
    """Computes the four AUROCs of the selection and their mean, by name."""
    values: dict[str, float] = {}
    for signal in SIGNALS:
        measured = intervals(signal_of(folds, signal), resamples=2)
        values |= {f"{signal} {name}": float(measured[name].value) for name in ("auroc", "auroc_within")}
    return {**values, "mean": float(np.mean(list(values.values())))}


def compare(methods: dict[str, list[Fold]], streams: Sequence[Stream], resamples: int) -> dict[str, Any]:
    """Measures every method, the differences between the student and the others, the annotators, and the timings.

    Each method has one entry per fold; "student" must be among them. The streams are the test streams of all folds,
    with their votes. The result is the content of results.json, without its provenance.
    """
    return {
        "parts": {
            part: _part({name: folds[chosen] for name, folds in methods.items()}, streams, resamples)
            for part, chosen in PARTS.items()
        },
        "temperatures": {
            name: [{signal: fold.calibration.fit(signal, "fast").temperature for signal in SIGNALS} for fold in folds]
            for name, folds in methods.items()
        },
        "epoch_seconds": {name: [list(fold.seconds) for fold in folds] for name, folds in methods.items()},
    }


def _part(methods: dict[str, list[Fold]], streams: Sequence[Stream], resamples: int) -> dict[str, Any]:
    def plain(*ranked: Ranked, names: Sequence[str] = MEASURES) -> dict[str, list[float | None]]:
        """Estimate, low and high of each measure, for JSON; null where there is no such number."""
        measured = intervals(*ranked, resamples=resamples)
        return {name: [known(getattr(measured[name], field)) for field in ("value", "low", "high")] for name in names}

    rows = out_of_fold(methods["student"])
    tested = set(rows.stream.tolist())
    tested_streams = [stream for stream in streams if stream.id in tested]
    human = {"accept": votes_against_votes(tested_streams), "need": need_against_others(tested_streams)}
    part: dict[str, Any] = {"streams": sorted(tested)}
    for signal in SIGNALS:
        ranked = {name: signal_of(folds, signal) for name, folds in methods.items()}
        student = ranked["student"]
        part[signal] = {
            "labels": len(student.y),
            "positive": float(student.y.mean()),
            "methods": {name: plain(method) for name, method in ranked.items()},
            "student minus": {name: plain(method, student) for name, method in ranked.items() if name != "student"},
            # Votes are not probabilities: an annotator has AUROCs, but no Brier score or ECE.
            "annotator": plain(human[signal], names=MEASURES[:2]),
        }
    offers = rows.take(~np.isnan(read(rows, "accept", "fast").y))
    single = against_votes(offers, signal_of(methods["student"], "accept").score)
    part["accept"]["single votes"] = plain(single, names=MEASURES[:2])
    return part


def out_of_fold(folds: Sequence[Fold]) -> Scores:
    """Concatenates the test rows of some folds; the signals are raw."""
    return joined([rows_of(fold.scores, TEST) for fold in folds])


def epoch_seconds(folder: epath.Path, steps: float) -> tuple[float, ...]:
    """Computes the duration of each whole epoch of a run in seconds, from the timings.jsonl of its folder.

    The first epoch includes what happens once: compiling, and computing the features of the frozen blocks. The number
    of steps per epoch need not be an integer.
    """
    seconds = [parse_json(line, f"{folder}: timings")["seconds"] for _, line in read_lines(folder / "timings.jsonl")]
    ends = [round(steps * epoch) for epoch in range(int(len(seconds) / steps) + 1)]
    return tuple(sum(seconds[start:end]) for start, end in itertools.pairwise(ends))


def tables(results: dict[str, Any]) -> list[Table]:
    """The tables of results.json, one per part and signal."""
    return [
        table(signal, content[signal], f"{part.capitalize()}: {len(content['streams'])} streams")
        for part, content in results["parts"].items()
        for signal in SIGNALS
    ]


def table(signal: Signal, content: dict[str, Any], part: str) -> Table:
    """Makes the table of one signal on one part: methods, annotators, and the student minus each other method."""
    human = [name for name in ("annotator", "single votes") if name in content]
    rows = (
        *(_row(NAMES[name], measured) for name, measured in content["methods"].items()),
        *(_row(NAMES[name], content[name]) for name in human),
        *(
            _row(f"SmolLM2 minus {NAMES[name].split(',')[0]}", measured, "+")
            for name, measured in content["student minus"].items()
        ),
    )
    title = f"{part}, {signal} ({content['labels']} labels, {content['positive']:.0%} positive)"
    return Table(title, "", COLUMNS, (Section("", rows),))


def _row(name: str, measured: dict[str, list[float | None]], sign: str = "") -> Row:
    numbers = {measure: [math.nan if end is None else end for end in ends] for measure, ends in measured.items()}
    cells = (
        show_interval(Estimate(*numbers[measure]), sign=sign) if measure in numbers else "" for measure in MEASURES
    )
    return Row(name, tuple(cells))
