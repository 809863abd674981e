"""Tables of policies replayed on human labels, and of how far the official split leaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.replay import MATCHED, Gain, PolicyReplay
from prism_jax.report.numbers import percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units
from prism_jax.streams.proactivebench_source import Leakage


def policy_table(
    rows: Mapping[float, Sequence[PolicyReplay]], title: str = "Policies replayed on human labels", note: str = ""
) -> Table:
    """Every policy at each cost ratio."""
    columns = (
        Column("speak rate", "Share of steps with an offer.", "%"),
        Column("accepted", "Share of the offers that are accepted.", "%"),
        Column("realised cost", "Offers that are not accepted, and silence where an accepted offer was needed."),
        Column("gold cost", "The same, where an offer that was not needed counts as not accepted."),
    )
    sections = tuple(
        Section(
            f"C_FN / C_FA = {ratio:g}",
            tuple(
                Row(
                    row.name,
                    (
                        percent(row.speak_rate),
                        percent(row.precision),
                        show_estimate(row.realised),
                        show_estimate(row.gold),
                    ),
                )
                for row in replays
            ),
        )
        for ratio, replays in rows.items()
    )
    replays = next(iter(rows.values()))
    return Table(title, "policy", columns, sections, note + _note(row.realised for row in replays))


def annotator_table(rows: Mapping[float, Sequence[PolicyReplay]]) -> Table:
    """One annotator's decisions, judged by the other annotators."""
    note = (
        "One row per annotator and step: the others' votes are the labels, so costs are not those of the table above. "
        "An annotator offers what they would accept; of several offers, any. "
    )
    return policy_table(rows, "One annotator decides for the others", note)


def gain_table(gains: Sequence[Gain]) -> Table:
    """What the two-signal gate costs more than p_accept alone."""
    columns = (Column("realised cost", "Of the gate, minus that of p_accept alone."), Column("gold cost", "Likewise."))
    sections = []
    for method in dict.fromkeys(gain.method for gain in gains):
        for matching in dict.fromkeys(gain.matching for gain in gains):
            rows = tuple(
                Row(
                    "mean over the ratios" if gain.ratio is None else f"C_FN / C_FA = {gain.ratio:g}",
                    (show_estimate(gain.realised, sign=True), show_estimate(gain.gold, sign=True)),
                    strong=gain.ratio is None,
                )
                for gain in gains
                if (gain.method, gain.matching) == (method, matching)
            )
            words = "exactly the same speak rate" if matching == MATCHED else "threshold of the training streams"
            sections.append(Section(f"{method}, {words}", rows))
    note = _note(gain.realised for gain in gains)
    title = "The gate minus p_accept alone (below 0: the gate is cheaper)"
    return Table(title, "costs", columns, tuple(sections), note, mark="mean")


def ranking_table(estimates: Mapping[str, Mapping[str, Estimate]], title: str) -> Table:
    """AUROCs of the raw signals, pooled and within streams."""
    columns = (
        Column("AUROC, pooled", "Over all pairs of a positive and a negative label."),
        Column("AUROC, within streams", "Over the pairs within one stream."),
    )
    rows = tuple(
        Row(name, (show_estimate(measures["auroc"]), show_estimate(measures["auroc_within"])))
        for name, measures in estimates.items()
    )
    note = _note(measures["auroc"] for measures in estimates.values())
    return Table(title, "ranked by", columns, (Section("", rows),), note)


def _note(intervals: Iterable[Estimate]) -> str:
    """The note of a table, with the number of streams of its intervals."""
    units = max((int(interval.units) for interval in intervals), default=0)
    over = over_units(units)
    return f"{over[0].upper()}{over[1:]}, in brackets; costs per step in units of C_FA."


def leakage_table(leakage: Leakage) -> Table:
    """How many official test rows share something with the official training rows."""
    columns = (Column("rows"), Column("share", "Of the official test rows.", "%"))
    words = {
        "rows": "all official test rows",
        "same_stream": "their stream has training rows",
        "same_step": "their step, with its whole history, has training rows",
        "same_need": "a training row states their step's need label",
        "same_row": "the same offer or silence at the same step is a training row",
    }
    rows = tuple(
        Row(
            text,
            (str(getattr(leakage, name)), percent(getattr(leakage, name) / leakage.rows if leakage.rows else None)),
        )
        for name, text in words.items()
    )
    return Table("What the official split leaks", "official test rows", columns, (Section("", rows),))
