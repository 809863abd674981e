"""Tables of ProactiveBench's own scores, of one judge each, and of the counts behind the published ones."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from prism_jax.proactivebench.official import COLUMNS, Score
from prism_jax.proactivebench.published import CATEGORY, TOTAL, Consistency
from prism_jax.report.numbers import percent
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.streams.traces import Mode

_MEANINGS = {
    "Recall": "Accepted proposals, of these and the rejected silences.",
    "Precision": "Share of the proposals that are accepted.",
    "Accuracy": "Share of the proposals and silences that are accepted.",
    "False-Alarm": "Share of the proposals that are rejected.",
    "F1-Score": "Harmonic mean of precision and recall.",
    "Accept Rate": "The published script computes it as precision.",
}
_NOTES: dict[Mode, str] = {
    "official": "The published arithmetic: every prediction counts, and everything but null is a proposal, failed "
    "requests and the text null included. A category with a missing stream is left out.",
    "fixed": "Each event counts once; null in words is silence, a failed request is no answer, and rates are exact.",
}
RECALLS = "Each system is judged by what it did itself, so recalls have different denominators."
"""What stands at a table of several systems."""


def score_table(scores: Mapping[str, Sequence[Score]], mode: Mode, judge: str) -> Table:
    """The scores of several models by one judge, one section per category."""
    columns = (
        *(Column(name, _MEANINGS[name], "%") for name in COLUMNS),
        Column(TOTAL, "Events of the category's streams that are there."),
        Column("proposals judged", "Proposals with a verdict, which the rates count, of all."),
        Column("silences judged", "Silences with a verdict, of all."),
        Column("no answer", "Events at which the model gave no answer."),
    )
    categories = dict.fromkeys(score.category for model_scores in scores.values() for score in model_scores)
    sections = []
    for category in categories:
        by_model = {
            model: score
            for model, model_scores in scores.items()
            for score in model_scores
            if score.category == category
        }
        rows = tuple(
            Row(
                model,
                (
                    *(percent(score.rates[name]) for name in COLUMNS),
                    str(score.events),
                    f"{score.counts.tp + score.counts.fp} of {score.proposals}",
                    f"{score.counts.tn + score.counts.fn} of {score.silences}",
                    str(score.failed),
                ),
            )
            for model, score in by_model.items()
        )
        missing = sorted({name for score in by_model.values() for name in score.missing})
        absent = f", without {', '.join(missing)}" if missing else ""
        sections.append(Section(f"{category}{absent}", rows))
    title = f"ProactiveBench scores, mode {mode}, judge: {judge}"
    return Table(title, "model", columns, tuple(sections), f"{_NOTES[mode]} {RECALLS}")


def scores_csv(scores: Sequence[Score]) -> str:
    """One model's scores as the published script writes them, with every decimal; an undefined rate is empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([CATEGORY, *COLUMNS, TOTAL])
    for score in scores:
        rates = [score.rates[name] for name in COLUMNS]
        lines.writerow([score.category, *("" if math.isnan(rate) else repr(rate) for rate in rates), score.events])
    return text.getvalue()


def published_table(consistencies: Mapping[str, Sequence[Consistency]]) -> Table:
    """The counts behind published rates, and the proposals in the traces, by model."""
    columns = (
        Column("accepted proposals", "TP of the only counts that give the published decimals."),
        Column("rejected proposals", "FP."),
        Column("accepted silences", "TN."),
        Column("rejected silences", "FN."),
        Column("events", "Total Events, and in brackets those whose traces are there."),
        Column("in traces, official", "Proposals in these traces, as the published script counts them."),
        Column("in traces, fixed", "Proposals in these traces without null in words and failed requests."),
        Column("published counted", "Which of the two counts the published proposals allow."),
    )
    sections = []
    for category in dict.fromkeys(row.category for rows in consistencies.values() for row in rows):
        rows = tuple(
            Row(model, _consistency(row))
            for model, rows in consistencies.items()
            for row in rows
            if row.category == category
        )
        sections.append(Section(category, rows))
    note = (
        "A count is allowed if the events without a trace can hold the other published proposals: at least none and at "
        "most one each."
    )
    return Table("Counts behind the published scores", "model", columns, tuple(sections), note)


def _consistency(row: Consistency) -> tuple[str, ...]:
    counts = tuple(map(str, row.counts)) if row.exact else tuple(f"{count}?" for count in row.counts)
    if not row.present:
        return (*counts, f"{row.events} (0)", "", "", "")
    allowed = [name for name in ("official", "fixed") if row.allows(getattr(row, name))]
    equal = row.official == row.fixed and bool(allowed)
    words = (
        "either, they are equal" if equal else {0: "neither", 1: f"{''.join(allowed)} only", 2: "either"}[len(allowed)]
    )
    return (*counts, f"{row.events} ({row.present})", str(row.official), str(row.fixed), words)
