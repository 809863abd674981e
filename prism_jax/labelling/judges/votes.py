"""The file of verdicts: JSON lines, one per question and judge, with where the verdict comes from.

A verdict is never guessed. Where a judge gave no valid answer, it is null, and `problem` says why.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import reprlib
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from etils import epath

from prism_jax.labelling.judges.prompts import OURS
from prism_jax.runtime.files import (
    check_folder_of,
    read_lines,
    without_links,
    write_text,
    writing,
)
from prism_jax.runtime.lock import only_one
from prism_jax.runtime.schema import decode, read_json

_DIGEST = re.compile(r"[0-9a-f]{64}")


class VotesError(ValueError):
    """A file that holds anything but verdicts, in one line: `FILE:LINE: field: found ..., expected ...`."""


class VoteKey(NamedTuple):
    """What a verdict is about, and who gave it. A file has one verdict for each."""

    question: str
    stream: str
    step: int
    candidate: int | None
    judge: str
    prompt: str = OURS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vote:
    """One judge's verdict on one proposal or on one silence."""

    stream: str  # id of the stream
    step: int  # number of the step in its stream, from 0
    candidate: int | None  # number of the proposal in its step, from 0; None where the question was about silence
    judge: str  # name of the judge in the config
    question: str  # SHA-256 of the question's text, in hexadecimal; a verdict on another text never counts for this one
    verdict: bool | None  # whether the user would accept; None where the judge gave no valid answer
    problem: str | None = None  # why there is no verdict; None where there is one
    model: str | None = None  # name that the endpoint gives to its model; None where it never answered
    request: str | None = None  # hash of the last request, the key of its answer in the cache; None where none was sent
    time: str | None = None  # when the last answer was given, in UTC, as ISO 8601; None where none was
    cost: float = 0.0  # cost of all requests for this verdict in US dollars, whether they were sent now or earlier
    # name of the prompt that it answers: ours, official DIGEST, or page; missing in files from before there were others
    prompt: str = OURS

    def __post_init__(self) -> None:
        for name in ("stream", "judge", "problem", "model", "request", "time", "prompt"):
            if (text := getattr(self, name)) is not None and not text.strip():
                raise ValueError(f"{name}: found {reprlib.repr(text)}, expected words")
        for name in ("step", "candidate"):
            if (index := getattr(self, name)) is not None and index < 0:
                raise ValueError(f"{name}: found {reprlib.repr(index)}, expected at least 0")
        if not _DIGEST.fullmatch(self.question):
            raise ValueError(f"question: found {reprlib.repr(self.question)}, expected a SHA-256 in hexadecimal")
        if (self.verdict is None) == (self.problem is None):
            raise ValueError(
                f"problem: found {reprlib.repr(self.problem)} with the verdict {self.verdict}, expected a problem "
                "exactly where the verdict is null"
            )
        if self.time is not None and not _is_time(self.time):
            raise ValueError(f"time: found {reprlib.repr(self.time)}, expected ISO 8601 with an offset from UTC")
        if not 0 <= self.cost <= sys.float_info.max:
            raise ValueError(f"cost: found {self.cost}, expected US dollars of at least 0")

    @property
    def key(self) -> VoteKey:
        """What the verdict is about, and who gave it."""
        return VoteKey(self.question, self.stream, self.step, self.candidate, self.judge, self.prompt)


def read_votes(path: epath.PathLike) -> Iterator[Vote]:
    """Yields the verdicts of a file, in its order, without holding them all.

    Raises:
      VotesError: naming file, line and field, for anything but verdicts, or a second one with the same `VoteKey`.
    """
    path = epath.Path(path)
    lines: dict[VoteKey, int] = {}
    for number, line in read_lines(path, VotesError, "verdicts as `judge` writes them"):
        place = f"{path}:{number}"
        vote: Vote = decode(Vote, read_json(line, place, VotesError), place, VotesError)
        first = lines.setdefault(vote.key, number)
        if first != number:
            raise VotesError(
                f"{place}: judge: found a second verdict of {reprlib.repr(vote.judge)} on the same "
                f"question (first on line {first}), expected one"
            )
        yield vote


def prompts_in(path: epath.PathLike, judges: Collection[str]) -> tuple[str, ...]:
    """The prompts that the named judges' verdicts in a file answer, in its order; errors are those of `read_votes`."""
    return tuple(dict.fromkeys(vote.prompt for vote in read_votes(path) if vote.judge in judges))


def write_votes(path: epath.PathLike, votes: Iterable[Vote]) -> None:
    """Writes a whole file of verdicts atomically; VotesError for a second verdict of a judge on one question."""
    check_folder_of(path)
    lines: dict[VoteKey, str] = {}
    for vote in votes:
        if vote.key in lines:
            raise VotesError(f"{path}: judge: found two verdicts of {vote.judge!r} on one question, expected one")
        lines[vote.key] = json.dumps(dataclasses.asdict(vote), ensure_ascii=False, allow_nan=False)
    with writing(path):
        write_text(path, "".join(f"{line}\n" for line in lines.values()))


def merge_votes(path: epath.PathLike, votes: Sequence[Vote]) -> list[Vote]:
    """Writes verdicts into a file that may hold others, which stay, and returns those of the file on these questions.

    A verdict that is missing replaces none that is there. Two processes that merge at once wait for each other.
    """
    check_folder_of(path)
    path = epath.Path(without_links(path))
    with only_one(path.parent, "writer of verdicts", f".{path.name}.lock", wait=True):
        kept = {vote.key: vote for vote in read_votes(path)} if path.exists() else {}
        votes = [kept.get(vote.key, vote) if vote.verdict is None else vote for vote in votes]
        new = {vote.key for vote in votes}
        write_votes(path, [*votes, *(vote for key, vote in kept.items() if key not in new)])
    return votes


def _is_time(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
