"""ProactiveBench's scores of a model's traces: as the published script computes them, and without its quirks.

Mode `official` repeats the published arithmetic. Each prediction counts by itself: a proposal is a true or false
positive, a silence a true or false negative, by the judge's verdict on it. Everything that is not null is a proposal
(`prism_jax.streams.traces`). Predictions and verdicts are paired in order, and what has no partner is dropped. Each
denominator has 1e-8 added. A category with a missing file is left out.

Mode `fixed` counts each event once: it is accepted if one of its proposals is. "null" in words is silence, a failed
request is no answer, neither is guessed, and rates are exact. Recall, accuracy and F1 compare proposals with silences,
so they are undefined where one of the two was never judged. A category is scored on the files that are there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prism_jax.streams import Step, Stream
from prism_jax.streams.traces import Mode, Trace, TraceEvent, fixed_turn, official_predictions

STABILISER = 1e-8
"""What the published script adds to every denominator."""
COLUMNS = ("Recall", "Precision", "Accuracy", "False-Alarm", "F1-Score", "Accept Rate")
"""Names of the published rates."""


class Counts(NamedTuple):
    """Verdicts by what was predicted."""

    tp: int  # accepted proposals
    fp: int  # rejected proposals
    tn: int  # accepted silences
    fn: int  # rejected silences


class Verdicts(NamedTuple):
    """A judge's verdicts on one event; None where there is none."""

    predictions: tuple[bool | None, ...] = ()  # on each prediction in the official reading, in order
    silence: bool | None = None  # on staying silent


Judged = Mapping[tuple[str, int], Verdicts]
"""One judge's verdicts by stream and number of the event."""


@dataclasses.dataclass(frozen=True)
class Score:
    """The scores of one model on one category."""

    category: str
    counts: Counts  # the judged predictions (`official`) or events (`fixed`)
    rates: Mapping[str, float]  # the published rates by name; NaN where undefined, which only exact rates can be
    events: int
    streams: int  # number of streams that are there
    missing: tuple[str, ...]  # streams of the category without a trace
    proposals: int  # proposals (`official`) or events with one (`fixed`), judged or not
    silences: int  # silences, judged or not
    # events without an answer; `official` takes failures for proposals and counts only events that were never asked
    # about
    failed: int


def official_rates(counts: Counts) -> dict[str, float]:
    """The published rates of some counts, bit for bit: the order of operations is the script's."""
    tp, fp, tn, fn = counts
    precision, recall = tp / (tp + fp + STABILISER), tp / (tp + fn + STABILISER)
    return {
        "Recall": recall,
        "Precision": precision,
        "Accuracy": (tp + tn) / (tp + tn + fp + fn + STABILISER),
        "False-Alarm": fp / (tp + fp + STABILISER),
        "F1-Score": 2 * (precision * recall) / (precision + recall + STABILISER),
        "Accept Rate": precision,
    }


def exact_rates(counts: Counts) -> dict[str, float]:
    """The same rates without a stabiliser; NaN for 0 / 0."""
    tp, fp, tn, fn = counts

    def share(part: int, whole: int) -> float:
        return part / whole if whole else math.nan

    return {
        "Recall": share(tp, tp + fn),
        "Precision": share(tp, tp + fp),
        "Accuracy": share(tp + tn, tp + fp + tn + fn),
        "False-Alarm": share(fp, tp + fp),
        "F1-Score": share(2 * tp, 2 * tp + fp + fn),
        "Accept Rate": share(tp, tp + fp),
    }


def score_traces(
    traces: Mapping[str, Trace], judged: Judged, mode: Mode, categories: Mapping[str, Sequence[str]] | None = None
) -> tuple[Score, ...]:
    """Scores one model's traces, by stream, by one judge; one score per category.

    `judged` holds the verdicts of one judge, or of one panel as a single judge. `categories` names the streams of each
    category; None is one category "all" of every trace. The mode `official` leaves out categories with a missing
    stream, as the published script does.
    """
    scores, cells_of = [], _official if mode == "official" else _fixed
    for name, streams in (categories or {"all": tuple(traces)}).items():
        missing = tuple(stream for stream in streams if stream not in traces)
        if missing and mode == "official":
            continue
        present = [stream for stream in streams if stream in traces]
        cells = [
            cells_of(event, judged.get((stream, number), Verdicts()))
            for stream in present
            for number, event in enumerate(traces[stream])
        ]
        counts = Counts(*(sum(cell.counts[i] for cell in cells) for i in range(4)))
        answers = sum(cell.proposals for cell in cells), sum(cell.silences for cell in cells)
        scores.append(
            Score(
                category=name,
                counts=counts,
                rates=_rates(counts, answers, mode),
                events=len(cells),
                streams=len(present),
                missing=missing,
                proposals=answers[0],
                silences=answers[1],
                failed=sum(cell.failed for cell in cells),
            )
        )
    return tuple(scores)


class _Cells(NamedTuple):
    """What one event adds to a score."""

    counts: Counts = Counts(0, 0, 0, 0)
    proposals: int = 0
    silences: int = 0
    failed: bool = False


def _rates(counts: Counts, answers_of_kind: tuple[int, int], mode: Mode) -> dict[str, float]:
    """The rates; `answers_of_kind` has the numbers of proposals and of silences, judged or not."""
    if mode == "official":
        return official_rates(counts)
    rates = exact_rates(counts)
    judged = counts.tp + counts.fp, counts.tn + counts.fn
    if any(answers and not verdicts for answers, verdicts in zip(answers_of_kind, judged, strict=True)):
        rates |= dict.fromkeys(("Recall", "Accuracy", "F1-Score"), math.nan)
    return rates


def _official(event: TraceEvent, verdicts: Verdicts) -> _Cells:
    predictions = official_predictions(event)
    counts = [0, 0, 0, 0]
    for prediction, verdict in zip(predictions, verdicts.predictions, strict=False):  # the script drops the rest too
        if verdict is not None:
            counts[_place(prediction is not None, verdict)] += 1
    proposals = sum(prediction is not None for prediction in predictions)
    return _Cells(Counts(*counts), proposals, len(predictions) - proposals, not predictions)


def _fixed(event: TraceEvent, verdicts: Verdicts) -> _Cells:
    turn = fixed_turn(event)
    if turn.failed:
        return _Cells(failed=True)
    verdict = _on_proposals(event, verdicts) if turn.proposals else verdicts.silence
    proposed, counts = bool(turn.proposals), [0, 0, 0, 0]
    if verdict is not None:
        counts[_place(proposed, verdict)] = 1
    return _Cells(Counts(*counts), int(proposed), int(not proposed))


def _on_proposals(event: TraceEvent, verdicts: Verdicts) -> bool | None:
    """Whether one of the proposals is accepted; None where missing verdicts could change that."""
    predictions, judgement = official_predictions(event), verdicts.predictions
    if len(judgement) not in (0, len(predictions)):
        return None  # one was dropped, and the order no longer tells which
    turn = fixed_turn(event)
    accepted = [
        judgement[i] if judgement else None for i, prediction in enumerate(predictions) if prediction in turn.proposals
    ]
    if any(accepted):
        return True
    return None if None in accepted else False


def _place(proposed: bool, accepted: bool) -> int:
    """Index in `Counts`."""
    return (0 if accepted else 1) if proposed else (2 if accepted else 3)


def verdicts_in_files(traces: Mapping[str, Trace]) -> dict[tuple[str, int], Verdicts]:
    """The verdicts that the files hold (`judgement`), as the published judging script writes them.

    A verdict on the text "null" is about a proposal of that text; it says nothing about silence.
    """
    verdicts = {}
    for stream, trace in traces.items():
        for number, event in enumerate(trace):
            if event.judgement is not None:
                silent = official_predictions(event) == (None,) and len(event.judgement) == 1
                verdicts[stream, number] = Verdicts(event.judgement, event.judgement[0] if silent else None)
    return verdicts


def verdicts_of_labels(traces: Mapping[str, Trace], labelled: Mapping[str, Stream]) -> dict[tuple[str, int], Verdicts]:
    """The verdicts of people: a proposal has that of the labelled candidate with the same text at the same event.

    Silence is accepted where help was not needed, by the streams' definition of need. An event whose text differs from
    the labelled one has no verdict, nor has a proposal that nobody was shown. The labels must be hard.
    """
    verdicts = {}
    for stream, trace in traces.items():
        if stream not in labelled:
            continue
        events, steps = labelled[stream].events, {step.event: step for step in labelled[stream].steps}
        for number, event in enumerate(trace):
            if number in steps and events[number].text == event.text:
                verdicts[stream, number] = _of_labels(event, steps[number])
    return verdicts


def _of_labels(event: TraceEvent, step: Step) -> Verdicts:
    silence = None if step.y_need is None else step.y_need == 0
    labels = {offer.text: offer.y_accept == 1 for offer in step.candidates if offer.text and offer.y_accept is not None}
    predictions = official_predictions(event)
    return Verdicts(tuple(silence if text is None else _label(text, labels) for text in predictions), silence)


def _label(prediction: object, labels: Mapping[str, bool]) -> bool | None:
    return labels.get(prediction) if isinstance(prediction, str) else None
