"""What probabilities can be read off the texts of public models, against human judgements (needs the extra `text`).

    python -m prism_jax experiments text_calibrator --source=DIR

DIR has the layout of ProactiveBench's repository. Need is read from what a model wrote at a step (purpose, task and
response; its silence too) and compared with the judgement of that step. Nobody judged these models' own offers, so
acceptance is read from the texts of the judged offers, which have neither purpose nor response. Every probability is
held out: it comes from a fit on other streams and, for need, on other models. The folds, the halves of the models, the
costs, and need by the official definition were fixed before the first run; that costs are compared on the same offers
was added after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags
from etils import epath
from jaxtyping import Float

from prism_jax.decision import gate, metrics
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import Bounds, mean_interval
from prism_jax.experiments.intervals import show_interval
from prism_jax.experiments.ranking import MEASURES, Ranked, intervals
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units
from prism_jax.streams import Step, Stream
from prism_jax.streams.proactivebench import load
from prism_jax.streams.published.recorded import OFFER, ModelAnswer, Recording, read_recordings
from prism_jax.teacher.text_calibrator import RESPONSE_FIELDS
from prism_jax.teacher.text_fit import Example, accept_examples, fit_text_map

FOLDS = 5
RESAMPLES = 10_000


class Judged(NamedTuple):
    """What one model wrote at one judged step."""

    example: Example  # its texts and the need label of the step
    model: str
    step: Step  # the judged step
    spoke: bool  # whether it made an offer


class HeldOut(NamedTuple):
    """Held-out probabilities."""

    rows: list[Judged]  # what the models wrote at the matched steps
    need: Float[np.ndarray, " rows"]  # p_need of each row
    need_base: Float[np.ndarray, " rows"]  # mean need label of the rows of the fit that gave it
    offers: list[Example]  # the judged offers
    accept: Float[np.ndarray, " offers"]  # p_accept of each offer
    accept_base: Float[np.ndarray, " offers"]  # mean acceptance label of the rows of the fit that gave it


def match(streams: Sequence[Stream], recordings: Sequence[Recording]) -> list[Judged]:
    """Pairs answers with the judged step of the same stream and event.

    The texts of a stream differ between its versions. An event counts as the same if its text occurs once in both.
    """
    judged = {stream.id: stream for stream in streams}
    pairs = []
    for recording in recordings:
        if (stream := judged.get(recording.stream.id)) is None:
            continue
        texts = [event.text for event in stream.events]
        own = [event.text for event in recording.stream.events]
        steps = {texts[step.event]: step for step in stream.steps if texts.count(texts[step.event]) == 1}
        for answer in recording.answers:
            step = steps.get(own[answer.event]) if own.count(own[answer.event]) == 1 else None
            if step is not None and step.y_need is not None:
                example = Example(_fields(answer), step.y_need, stream.id)
                pairs.append(Judged(example, answer.model, step, answer.texts[OFFER] is not None))
    return pairs


def _fields(answer: ModelAnswer) -> dict[str, str]:
    return {name: text for name in RESPONSE_FIELDS if (text := answer.texts.get(name)) is not None}


def hold_out(rows: list[Judged], streams: Sequence[Stream]) -> HeldOut:
    """Fits on some streams and models and predicts on the others, until every row has one prediction."""
    offers = list(accept_examples(streams))
    names = sorted({stream.id for stream in streams})
    fold = {name: number % FOLDS for number, name in enumerate(names)}
    half = {name: number % 2 for number, name in enumerate(sorted({row.model for row in rows}))}
    parts = [(fold[row.example.stream], half[row.model]) for row in rows]
    need, accept = np.full((2, len(rows)), np.nan), np.full((2, len(offers)), np.nan)
    for held in sorted(set(parts)):
        train = [row.example for row, (f, h) in zip(rows, parts, strict=True) if f != held[0] and h != held[1]]
        _predict(need, train, [row.example for row in rows], [part == held for part in parts])
    for held_fold in range(FOLDS):
        own = [fold[offer.stream] == held_fold for offer in offers]
        if any(own):
            _predict(accept, [offer for offer, out in zip(offers, own, strict=True) if not out], offers, own)
    return HeldOut(rows, need[0], need[1], offers, accept[0], accept[1])


def _predict(into: np.ndarray, train: list[Example], rows: list[Example], held: list[bool]) -> None:
    """Fits on some rows and writes the probabilities, and the base rate, of the held-out ones."""
    fitted = fit_text_map(train)
    places = np.flatnonzero(held)
    into[0, places] = fitted([rows[place].fields for place in places])
    into[1, places] = fitted.base_rate


def signal_table(held_out: HeldOut) -> Table:
    """How well each signal ranks and how well it is calibrated, with intervals over streams."""
    spoke = np.array([row.spoke for row in held_out.rows], float)
    need = {"text calibrator": held_out.need, "offer or silence": spoke, "base rate": held_out.need_base}
    accept = {"text calibrator": held_out.accept, "base rate": held_out.accept_base}
    sections = []
    for name, signals, examples in (
        ("p_need, from what models wrote", need, [row.example for row in held_out.rows]),
        ("p_accept, from the judged offers", accept, held_out.offers),
    ):
        y = np.array([example.label for example in examples])
        stream = np.array([example.stream for example in examples])
        rows = []
        for label, p in (signals | {"constant 0.5": np.full(len(y), 0.5)}).items():
            ranked = intervals(Ranked(p, p, y, stream), resamples=RESAMPLES)
            rows.append(Row(label, tuple(show_interval(ranked[measure]) for measure in MEASURES)))
        sections.append(Section(f"{name} ({len(y):,} rows, {len(set(stream))} streams)", tuple(rows)))
    headings = {"auroc": "AUROC", "auroc_within": "AUROC within streams", "brier": "Brier", "ece": "ECE"}
    return Table(
        "Held-out probabilities from texts",
        "",
        tuple(Column(headings[measure]) for measure in MEASURES),
        tuple(sections),
        "With 95 % intervals over streams. The base rate of the other streams is low where that of the "
        "held-out ones is high, so pooled AUROC is below 0.5 for it, and low for whatever starts from it.",
    )


def cost_table(held_out: HeldOut, point: OperatingPoint) -> Table:
    """What decisions on the held-out probabilities cost, per model and step.

    The policies of a section decide about the same offers: the one of highest p_accept, or the first in the shuffled
    order of the data set. Silence costs the same in both: what the best judged offer of the step would have brought.
    """
    by_offer = {(offer.stream, offer.fields[OFFER]): place for place, offer in enumerate(held_out.offers)}
    places = [_places(row, by_offer) for row in held_out.rows]
    index = np.flatnonzero([len(own) > 0 for own in places])
    stream = np.array([held_out.rows[i].example.stream for i in index])
    y_need = np.array([held_out.rows[i].example.label for i in index])
    y_accept = np.array([offer.label for offer in held_out.offers])
    spoke = np.array([held_out.rows[i].spoke for i in index])
    missed = y_need * np.array([y_accept[places[i]].max() for i in index])
    sections = []
    for title, offer in (
        ("the offer of highest p_accept", [max(places[i], key=lambda place: held_out.accept[place]) for i in index]),
        ("some offer", [places[i][0] for i in index]),
    ):
        policies = {
            "text calibrator": _decide(held_out.accept[offer], held_out.need[index], point),
            "base rates": _decide(held_out.accept_base[offer], held_out.need_base[index], point),
            "when the model spoke": spoke,
            "always": np.ones(len(index), bool),
            "never": np.zeros(len(index), bool),
        }
        accepted = y_accept[offer]
        rows = []
        for name, decision in policies.items():
            cost = metrics.step_costs(decision, accepted, missed, point.c_fa, point.c_fn)
            mean_cost = mean_interval(cost, stream, bounds=Bounds(0.0, max(point.c_fa, point.c_fn)))
            rows.append(Row(name, (show_interval(mean_cost), f"{100 * np.mean(decision):.1f}")))
        sections.append(Section(title, tuple(rows)))
    return Table(
        f"Realised cost per step at C_FA:C_FN = {point.c_fa:g}:{point.c_fn:g}",
        "",
        (Column("cost"), Column("speak rate", unit="%")),
        tuple(sections),
        f"{len(index):,} pairs of a model and a step with a judged offer, {over_units(len(set(stream)))}. "
        "An offer is one that people judged, not the model's own.",
    )


def _decide(p_accept: np.ndarray, p_need: np.ndarray, point: OperatingPoint) -> np.ndarray:
    return np.asarray(gate.intervene(p_accept, p_accept * p_need, point.c_fa, point.c_fn))


def _places(row: Judged, by_offer: Mapping[tuple[str, str], int]) -> list[int]:
    """The judged offers of a row's step, in the order of the data set, which is shuffled."""
    return [
        by_offer[row.example.stream, candidate.text]
        for candidate in row.step.candidates
        if candidate.text is not None and candidate.y_accept is not None
    ]


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("source", None, "Folder with the layout of ProactiveBench's repository.")


def main() -> Iterable[Table]:
    """Measures how well texts predict human judgements."""
    source = epath.Path(flags.FLAGS.source)
    streams = load(source)
    rows = match(streams, read_recordings(source / "eval" / "traces_new")[0])
    held_out = hold_out(rows, streams)
    return [signal_table(held_out), cost_table(held_out, OperatingPoint())]
