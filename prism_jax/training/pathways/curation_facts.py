"""What the start-up report says about curation: what it kept, and what it does to the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prism_jax.streams import Stream
from prism_jax.training.pathways.curated import KEPT, NOT_SELECTED, UNJUDGED, Curated, Error, already_curated


def facts_of(found: Curated) -> dict[str, str]:
    """The numbers of kept rows by stratum and domain, and a warning about labels that became more certain."""
    kept, total = found.total(KEPT), found.total()
    facts = {"kept": f"{kept:,} of {total:,} rows"}
    domains: dict[tuple[str, str], list[int]] = {}
    for count in found.counts:
        if count.outcome in (KEPT, NOT_SELECTED):
            domains.setdefault((count.stratum, count.domain), [0, 0])[count.outcome == NOT_SELECTED] += count.rows
    for (stratum, domain), (chosen, dropped) in domains.items():
        shown = f"{domain} {chosen:,} of {chosen + dropped:,}"
        facts[f"  {stratum}"] = ", ".join([*filter(None, [facts.get(f"  {stratum}")]), shown])
    if unjudged := found.total(UNJUDGED):
        facts[f"  {UNJUDGED}"] = f"0 of {unjudged:,}"
    if kept < total:
        facts["curation"] = _what_curation_does(found)
    return facts


def _what_curation_does(found: Curated) -> str:
    """Warns that the kept labels are more certain than those of other streams, with the teacher's error on both."""
    return (
        "WARNING: curation keeps labels that the teacher predicted (its Brier score on the training rows falls from "
        f"{in_words(found.need)} for need, from {in_words(found.accept)} for acceptance), so raw signals will be "
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
