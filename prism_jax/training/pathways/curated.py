"""Curation: the rows of teacher-labelled streams with the highest R_DC, how many were dropped and why, in words too.

The pathways that filter their data and `curate` both call `curate`. The streams that it returns say so
(`Stream.curated`), in a file too, because rows that are filtered twice are no longer a stated share of anything.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from prism_jax.decision import curation
from prism_jax.streams import Stream
from prism_jax.streams.edit import keep_candidates
from prism_jax.training.pathway_config import PathwayConfig, Score

KEPT = "kept"
NOT_SELECTED = "not selected"
UNJUDGED = "need not judged"
UNTAUGHT = "no teacher probability"
OUTCOMES = (KEPT, NOT_SELECTED, UNJUDGED, UNTAUGHT)
"""What can become of a row; all but the first are reasons for dropping it."""


class Rows(NamedTuple):
    """One row per candidate of each step, in order, with the columns that `curation.score` reads."""

    q_need: Float[np.ndarray, " n"]  # teacher's probability of need; 0 where there is none
    q_accept: Float[np.ndarray, " n"]  # teacher's probability of acceptance; 0 where there is none
    y_need: Float[np.ndarray, " n"]  # need label; 0 where there is none
    y_accept: Float[np.ndarray, " n"]  # acceptance label; 0 where there is none
    seen: Float[np.ndarray, " n"]  # 1 where the acceptance was observed, else 0
    judged: Bool[np.ndarray, " n"]  # whether there is a need label
    # whether there is every probability that the score reads: q_accept counts only where acceptance was seen
    taught: Bool[np.ndarray, " n"]
    domain: np.ndarray  # name of the stream's domain

    def score(self, kind: Score = "default") -> Float[np.ndarray, " n"]:
        """R_DC of each row; a term whose label is missing is 0, in the paper's form too."""
        need = np.where(self.judged, self.y_need, self.q_need)
        if kind == "paper":
            return np.asarray(curation.score_paper(self.q_need, self.q_accept * self.seen, need, self.y_accept))
        return np.asarray(curation.score(self.q_need, self.q_accept, need, self.y_accept, self.seen))

    def strata(self) -> np.ndarray:
        """The name of each row's stratum; rows without a need label are one of their own."""
        return np.where(self.judged, curation.strata(self.y_need, self.y_accept, self.seen), UNJUDGED)


def rows_of(streams: Sequence[Stream]) -> Rows:
    """The rows of all streams; an offer counts as made where its acceptance was observed."""
    cells = [
        (step.teacher_need, offer.teacher_accept, step.y_need, offer.y_accept, stream.domain)
        for stream in streams
        for step in stream.steps
        for offer in step.candidates
    ]
    *columns, domain = zip(*cells, strict=True) if cells else ((),) * 5
    numbers = np.array(columns, dtype=float)  # None becomes NaN
    taught_need, taught_accept, judged, seen = ~np.isnan(numbers)
    taught = taught_need & (taught_accept | ~seen)
    q_need, q_accept, y_need, y_accept = np.nan_to_num(numbers)
    return Rows(q_need, q_accept, y_need, y_accept, seen * 1.0, judged, taught, np.array(domain, dtype=str))


class Count(NamedTuple):
    """The number of rows of one stratum and domain with one outcome, one of `OUTCOMES`."""

    stratum: str
    domain: str
    outcome: str
    rows: int


class Error(NamedTuple):
    """The teacher's Brier score on labelled rows before curation and after it; NaN without labels."""

    before: float
    after: float


class Curated(NamedTuple):
    """The result of curation."""

    # streams with the kept candidates, marked as curated; steps and streams without any are dropped
    streams: tuple[Stream, ...]
    counts: tuple[Count, ...]  # one entry for each stratum, domain and outcome that occurs, sorted
    need: Error  # error of the teacher's probability of need
    accept: Error  # error of the teacher's probability of acceptance

    def total(self, *outcomes: str) -> int:
        """The number of rows with these outcomes, of all rows if none is named."""
        return sum(count.rows for count in self.counts if count.outcome in (outcomes or OUTCOMES))


def curate(streams: Sequence[Stream], pathway: PathwayConfig, count: str = "pathway.count") -> Curated:
    """Keeps the rows that curation selects among those with a need label and the teacher's probabilities.

    The pathway's `keep`, `count`, `score` and `stratify` say how rows are scored and selected. The argument `count` is
    the name of that setting, for messages.

    Raises:
      ValueError: if a stream is curated already, no row can be scored, or `pathway.count` exceeds the rows that can.
    """
    if done := already_curated(streams):
        raise ValueError(f"data: {done}, expected streams with all their rows: rows are selected once")
    rows = rows_of(streams)
    (usable,) = np.nonzero(rows.judged & rows.taught)
    if not rows.judged.any():
        raise ValueError("data: found no step with a need label, expected some: curation scores labelled steps")
    if not usable.size:
        raise ValueError("data: found no labelled row with a teacher's probabilities, expected some to score")
    if pathway.count > usable.size:
        raise ValueError(
            f"{count}: found {pathway.count}, expected at most the {usable.size} rows that have a need label and a "
            "teacher's probabilities"
        )
    chosen = curation.select(
        rows.score(pathway.score)[usable],
        rows.y_need[usable],
        rows.y_accept[usable],
        rows.seen[usable],
        fraction=None if pathway.count else pathway.keep,
        count=pathway.count or None,
        stratify=pathway.stratify,
    )
    kept = np.zeros(len(rows.judged), bool)
    kept[usable[chosen.kept]] = True
    how = _in_words(pathway, int(kept.sum()), kept.size)
    return Curated(
        _only(streams, kept, how),
        _counts(rows, kept),
        _error(rows.q_need, rows.y_need, rows.judged & rows.taught, kept),
        _error(rows.q_accept, rows.y_accept, (rows.seen > 0) & rows.taught, kept),
    )


def already_curated(streams: Sequence[Stream]) -> str:
    """Says how many streams are curated already, and how the first was; empty if none is."""
    done = [stream for stream in streams if stream.curated]
    if not done:
        return ""
    first = done[0]
    return f"found {len(done):,} of {len(streams):,} streams curated already ({first.id!r}: {first.curated})"


def _in_words(pathway: PathwayConfig, kept: int, total: int) -> str:
    """How rows were selected, for `Stream.curated`."""
    ranked = "R_DC" if pathway.score == "default" else "R_DC of the paper"
    return f"{kept:,} of {total:,} rows by {ranked}, {'within strata' if pathway.stratify else 'overall'}"


def _counts(rows: Rows, kept: Bool[np.ndarray, " n"]) -> tuple[Count, ...]:
    """Counts the rows by stratum, domain and what became of them; an unjudged row is not looked at any further."""
    outcome = np.select([kept, ~rows.judged, ~rows.taught], [KEPT, UNJUDGED, UNTAUGHT], NOT_SELECTED)
    cells, numbers = np.unique(np.stack([rows.strata(), rows.domain, outcome]), axis=1, return_counts=True)
    return tuple(
        Count(str(stratum), str(domain), str(what), int(n))
        for (stratum, domain, what), n in zip(cells.T, numbers, strict=True)
    )


def _error(q: np.ndarray, y: np.ndarray, known: Bool[np.ndarray, " n"], kept: Bool[np.ndarray, " n"]) -> Error:
    """The teacher's mean squared error on the rows with a label, before and after curation."""
    squares = (q - y) ** 2
    return Error(*(float(squares[mask].mean()) if mask.any() else float("nan") for mask in (known, known & kept)))


def _only(streams: Sequence[Stream], kept: Bool[np.ndarray, " n"], how: str) -> tuple[Stream, ...]:
    """The streams with only the kept candidates, marked as curated."""
    flags = iter(kept.tolist())  # in the order in which `keep_candidates` visits the candidates
    left = [keep_candidates(stream, lambda _: next(flags)) for stream in streams]
    return tuple(dataclasses.replace(stream, curated=how) for stream in left if stream is not None)


def facts_of(curated: Curated) -> dict[str, str]:
    """The numbers of kept rows by stratum and domain, and a warning about labels that became more certain."""
    kept, total = curated.total(KEPT), curated.total()
    facts = {"kept": f"{kept:,} of {total:,} rows"}
    domains: dict[tuple[str, str], list[int]] = {}
    for count in curated.counts:
        if count.outcome in (KEPT, NOT_SELECTED):
            domains.setdefault((count.stratum, count.domain), [0, 0])[count.outcome == NOT_SELECTED] += count.rows
    for (stratum, domain), (chosen, dropped) in domains.items():
        shown = f"{domain} {chosen:,} of {chosen + dropped:,}"
        facts[f"  {stratum}"] = ", ".join([*filter(None, [facts.get(f"  {stratum}")]), shown])
    if unjudged := curated.total(UNJUDGED):
        facts[f"  {UNJUDGED}"] = f"0 of {unjudged:,}"
    if kept < total:
        facts["curation"] = _what_curation_does(curated)
    return facts


def _what_curation_does(curated: Curated) -> str:
    """Warns that the kept labels are more certain than those of other streams, with the teacher's error on both."""
    return (
        "WARNING: curation keeps labels that the teacher predicted (its Brier score on the training rows falls from "
        f"{in_words(curated.need)} for need, from {in_words(curated.accept)} for acceptance), so raw signals will be "
        "overconfident. The calibration streams are not curated: the calibrated signals are fitted on them, and every "
        "table shows both"
    )


def in_words(error: Error) -> str:
    """The teacher's Brier score before and after, without what is unknown."""
    return " to ".join(f"{value:.3f}" for value in error if not math.isnan(value)) or "unknown"


def facts_of_file(streams: Sequence[Stream]) -> dict[str, str]:
    """Says that training streams were curated before this run, if any were, because the run does not filter them."""
    if not (done := already_curated(streams)):
        return {}
    return {
        "curated": f"{done}. This run drops no row of them. Their labels are more certain than those of other streams, "
        "so raw signals will be overconfident; calibration and test streams are whole"
    }
