"""Scores tables whose labels are a panel's verdicts: of a student's signals, or of the teacher's own probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from prism_jax.scores import Scores
from prism_jax.scores.units import folds_of
from prism_jax.streams import Stream
from prism_jax.streams.stream_columns import offer_columns

LABELS = ("y_need", "y_accept", "votes", "logged", "propensity")
"""The columns that verdicts decide."""
_FOLDS = 5


def judged_scores(labelled: Sequence[Stream], scores: Scores) -> Scores:
    """The table with the labels of streams of `label_streams` in place of its own; null where there is no verdict.

    A table without need gets labels of acceptance alone.

    Raises:
      ValueError: naming stream, step and candidate, for a row that is no candidate of the streams, or the reverse; or
        naming a stream whose rows are curated.
    """
    _check_whole(labelled)
    offers = {
        (stream.id, number, index): offer_columns(stream, step, offer, split="", fold=0)
        for stream in labelled
        for number, step in enumerate(stream.steps)
        for index, offer in enumerate(step.candidates)
    }
    places = [*zip(scores.stream.tolist(), scores.step.tolist(), scores.candidate.tolist(), strict=True)]
    for stream, step, candidate in sorted(offers.keys() ^ set(places)):
        what = "a candidate without scores" if (stream, step, candidate) in offers else "scores of no such candidate"
        raise ValueError(
            f"--scores: stream {stream!r}, step {step}, candidate {candidate}: found {what}, expected the scores of "
            "exactly these --streams"
        )
    names = LABELS if scores.has_need else LABELS[1:]
    labels = {name: [offers[place][name] for place in places] for name in names}
    return Scores.from_columns({**scores.columns(), **scores.extra, **labels})


def teacher_scores(labelled: Sequence[Stream]) -> tuple[Scores, int]:
    """The teacher's probabilities with the labels of streams of `label_streams`, in folds of whole streams.

    Steps of which the teacher gave no probabilities are left out, and counted.

    Raises:
      ValueError: if no step has any, or naming a stream whose rows are curated.
    """
    _check_whole(labelled)
    rows: list[dict[str, Any]] = []
    left_out = 0
    for stream in labelled:
        for number, step in enumerate(stream.steps):
            known = step.teacher_need is not None and all(offer.teacher_accept is not None for offer in step.candidates)
            left_out += not known
            for index, offer in enumerate(step.candidates if known else ()):
                columns = offer_columns(stream, step, offer, split="all", fold=0)
                signals = {"p_need_fast": step.teacher_need, "p_accept_fast": offer.teacher_accept}
                rows.append(columns | {"step": number, "candidate": index} | signals)
    if not rows:
        raise ValueError(
            "--scores_out: found no probabilities of a teacher in --streams, expected some, or a system's --scores"
        )
    scores = Scores.from_rows(rows)
    return dataclasses.replace(scores, split=None, fold=folds_of(scores.stream, None, _FOLDS)), left_out


def _check_whole(streams: Sequence[Stream]) -> None:
    for stream in streams:
        if stream.curated:
            raise ValueError(
                f"--scores_out: stream {stream.id!r}: found curated rows ({stream.curated}), expected whole streams: "
                "labels that were selected would bias the calibration and the results"
            )
