"""From verdicts to ballots, and to labelled streams."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from prism_jax.labelling.judges.ballots import (
    Ballots,
    Item,
    PanelConfig,
    human_ballots,
    make_ballots,
    panel_labels,
    step_items,
)
from prism_jax.labelling.judges.prompts import OURS, questions
from prism_jax.labelling.judges.votes import Vote, VoteKey, VotesError, read_votes
from prism_jax.runtime.files import parse_json, read_lines
from prism_jax.streams import Candidate, Stream
from prism_jax.streams.jsonl import read_streams


class Place(NamedTuple):
    """Where a question stands in a file of streams, and the digest of its text."""

    question: str
    stream: str
    step: int
    candidate: int | None


Verdicts = Mapping[Place, tuple[bool | None, ...]]
"""The verdict of each judge on each question, in a fixed order of judges."""


def gather(votes: Iterable[Vote], judges: Sequence[str], prompt: str = OURS) -> Verdicts:
    """Collects the named judges' verdicts on a prompt, in their order, by question; all others are left out."""
    column = {name: index for index, name in enumerate(judges)}
    by_place: dict[Place, list[bool | None]] = {}
    for vote in votes:
        if vote.judge in column and vote.prompt == prompt:
            place = Place(vote.question, vote.stream, vote.step, vote.candidate)
            by_place.setdefault(place, [None] * len(judges))[column[vote.judge]] = vote.verdict
    return {place: tuple(verdicts) for place, verdicts in by_place.items()}


def judge_ballots(
    streams: Iterable[Stream], verdicts: Verdicts, judges: Sequence[str], most_events: int, prompt: str = OURS
) -> Ballots:
    """The judges' ballots on the questions about these streams; questions that nobody was asked are left out.

    Verdicts are those of `gather`, in the order of the judges; `most_events` and `prompt` are those of the questions.
    """
    rows: dict[Item, tuple[bool | None, ...]] = {}
    for stream in streams:
        names = [list(step_items(stream, step)) for step in stream.steps]
        for question in questions(stream, most_events, prompt=prompt):
            ballot = verdicts.get(Place(question.digest, question.stream, question.step, question.candidate))
            if ballot is not None:
                silence, *offers = names[question.step]
                rows[silence if question.candidate is None else offers[question.candidate]] = ballot
    return make_ballots(rows, judges)


def votes_of(paths: Iterable[str]) -> list[Vote]:
    """The verdicts of several files, each once; one that is missing in a file counts where another has it.

    Raises VotesError naming both files, where a judge has two different verdicts on one question.
    """
    known: dict[VoteKey, tuple[Vote, str]] = {}
    for path in paths:
        for vote in read_votes(path):
            first, place = known.setdefault(vote.key, (vote, path))
            if first.verdict is None:
                known[vote.key] = vote, path
            elif vote.verdict not in (None, first.verdict):
                raise VotesError(
                    f"{place} and {path}: judge: found two verdicts of {vote.judge!r} on one question (stream "
                    f"{vote.stream!r}, step {vote.step}, candidate {vote.candidate}), expected one"
                )
    return [vote for vote, _ in known.values()]


def human_of(paths: Sequence[str], streams: Sequence[Stream], most_events: int) -> Ballots:
    """People's verdicts on these streams, one judge per person; a person may have several files of votes.

    `paths` are files of votes, or else files of streams that hold votes, whose judges are places (`human_ballots`).

    Raises:
      VotesError: naming both files, if a person has two different verdicts on one question.
      ValueError: if no vote is about these streams.
    """
    firsts = [parse_json(line, f"{path}:1") for path in paths for _, line in itertools.islice(read_lines(path), 1)]
    if not any(isinstance(first, Mapping) and "verdict" in first for first in firsts):
        ballots = human_ballots(stream for path in paths for stream in read_streams(path))
    else:
        votes = [dataclasses.replace(vote, prompt=OURS) for vote in votes_of(paths)]  # a page asks our question
        people = list(dict.fromkeys(vote.judge for vote in votes))
        ballots = judge_ballots(streams, gather(votes, people), people, most_events)
    if not ballots.items:
        expected = f"expected people's votes on their questions with most_events = {most_events}"
        raise ValueError(f"{', '.join(paths)}: found no vote on these streams, {expected}")
    return ballots


def label_streams(
    streams: Iterable[Stream], verdicts: Verdicts, most_events: int, config: PanelConfig, prompt: str = OURS
) -> Iterator[Stream]:
    """Yields the streams with the panel's labels in place of any older ones.

    y_need is 1 where silence is rejected, y_accept where a candidate is accepted. `votes` holds the verdicts that are
    present, in the order of the judges. A judged candidate counts as offered (`logged`, with propensity 1), because its
    label is observed whatever a log says; a candidate without a label keeps neither log nor propensity. Verdicts are
    those of `gather`, and `most_events` and `prompt` are those of the questions.
    """
    for stream in streams:
        by_candidate: dict[tuple[int, int | None], tuple[bool | None, ...]] = {}
        for question in questions(stream, most_events, prompt=prompt):
            place = Place(question.digest, question.stream, question.step, question.candidate)
            by_candidate[question.step, question.candidate] = verdicts.get(place, ())
        steps = []
        for number, step in enumerate(stream.steps):
            candidates = tuple(
                _judged(candidate, by_candidate.get((number, index), ()), config)
                for index, candidate in enumerate(step.candidates)
            )
            silence, votes = _label(by_candidate.get((number, None), ()), config)
            need = None if silence is None else 1.0 - silence
            steps.append(dataclasses.replace(step, candidates=candidates, y_need=need, votes=votes))
        yield dataclasses.replace(stream, steps=tuple(steps))


def _judged(candidate: Candidate, verdicts: tuple[bool | None, ...], config: PanelConfig) -> Candidate:
    label, votes = _label(verdicts, config)
    log: dict[str, Any] = {"logged": None, "propensity": None} if label is None else {"logged": True, "propensity": 1.0}
    return dataclasses.replace(candidate, y_accept=label, votes=votes, **log)


def _label(verdicts: tuple[bool | None, ...], config: PanelConfig) -> tuple[float | None, tuple[bool, ...]]:
    """The label of one question, None where it is not known, and the verdicts that are present."""
    votes = tuple(verdict for verdict in verdicts if verdict is not None)
    row = np.array([[np.nan if verdict is None else float(verdict) for verdict in verdicts]])
    label = float(panel_labels(row, config)[0]) if verdicts else np.nan
    return None if np.isnan(label) else label, votes
