"""Asks every judge every question and writes their verdicts; started again, it asks only what was not answered.

Each answer is in the cache before it is used (`prism_jax.remote`). The file of verdicts is written anew from the
answers and appears when all are there, so a run that was killed loses nothing, and no reader sees a partial file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pydantic
from etils import epath

from prism_jax.judges.panels import PanelConfig
from prism_jax.judges.prompts import SYSTEM, Asked, Question, questions
from prism_jax.judges.votes import Vote, VoteKey, new_votes, read_votes
from prism_jax.remote import jobs
from prism_jax.remote.client import Client
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import Reply, ask_for
from prism_jax.remote.tally import Tally
from prism_jax.runtime.dataclass_config import check_at_least
from prism_jax.streams import Stream


@dataclasses.dataclass(frozen=True)
class JudgesConfig:
    """A panel of judges."""

    name: str = "judges"  # name of the panel in tables
    # the judges by name, an odd number; their order is that of the votes in labelled streams
    endpoints: Mapping[str, EndpointConfig] = dataclasses.field(default_factory=dict)
    remote: RemoteConfig = dataclasses.field(default_factory=RemoteConfig)
    panel: PanelConfig = dataclasses.field(default_factory=PanelConfig)
    # `all` asks about silence and about every candidate; `made` asks only about what a recorded assistant did (the
    # candidate with `logged` true, or silence), which is all that ProactiveBench's own scores need
    asked: Asked = "all"
    most_events: int = 40  # maximum number of events that a question shows, the newest ones
    retries: int = 2  # how often an invalid answer is returned to the judge with what is wrong with it

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError(f"name: found {self.name!r}, expected words")
        if len(self.endpoints) % 2 == 0:
            raise ValueError(f"endpoints: found {len(self.endpoints)} judges, expected an odd number, such as 3")
        check_at_least(self, 1, "most_events")
        check_at_least(self, 0, "retries")


class Verdict(pydantic.BaseModel):
    """A judge's answer: one boolean. Nothing else is accepted, so no reasoning is kept."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    accepted: bool = pydantic.Field(description="Whether this user would accept it now.")


class Judged(NamedTuple):
    """What came of asking: the counts of the job, and how many verdicts there are and are missing."""

    tally: Tally
    verdicts: int
    missing: int


class _Task(NamedTuple):
    question: Question
    judge: str


def judge_streams(
    streams: Iterable[Stream],
    config: JudgesConfig,
    votes: epath.PathLike,
    *,
    dry_run: bool = False,
    label: str = "judge",
) -> Judged:
    """Asks the judges about streams and writes their verdicts.

    The file `votes` is replaced atomically at the end. Verdicts that it already holds, on other questions or of other
    judges, are kept, so one file may serve several panels and several systems. Two systems' outputs on the same streams
    may follow each other. A dry run sends and writes nothing, and only estimates what it would cost.

    Raises:
      FileNotFoundError: if the folder of `votes` does not exist.
      VotesError: if `votes` exists and holds anything but verdicts.
      ValueError: naming the section, for an endpoint that cannot be used.
      RuntimeError: if the budget would be passed, an endpoint refuses every request, or none was answered.
    """
    path, streams = epath.Path(votes), list(streams)
    kept = list(read_votes(path)) if path.exists() else []
    total = len(config.endpoints) * sum(1 for _ in _distinct(streams, config))
    with open_clients(config.remote, config.endpoints, dry_run=dry_run) as (clients, tally):
        verdicts = jobs.work_through(
            (_Task(question, judge) for question in _distinct(streams, config) for judge in clients),
            lambda task: _ask(task, clients[task.judge], config.retries),
            at_once=2 * sum(endpoint.concurrency for endpoint in config.endpoints.values()),
            total=total,
            label=label,
            tally=tally,
        )
        if dry_run:
            return Judged(tally, total, sum(1 for _ in verdicts))
        missing = 0
        with new_votes(path) as writer:
            for vote in verdicts:
                writer.add(vote)
                missing += vote.verdict is None
            tally.check_answered()
            for vote in kept:
                if not writer.has(vote.key):
                    writer.add(vote)
    return Judged(tally, total, missing)


def _distinct(streams: Iterable[Stream], config: JudgesConfig) -> Iterator[Question]:
    """Every question once; two systems share their questions about silence."""
    seen: set[VoteKey] = set()
    for stream in streams:
        for question in questions(stream, config.most_events, config.asked):
            key = VoteKey(question.digest, question.stream, question.step, question.candidate, "")
            if key not in seen:
                seen.add(key)
                yield question


async def _ask(task: _Task, client: Client, retries: int) -> Vote:
    """One judge's verdict on one question."""
    messages = (Message("system", SYSTEM), Message("user", task.question.text))
    return _vote(task, await ask_for(client, messages, Verdict, retries))


def _vote(task: _Task, reply: Reply[Verdict]) -> Vote:
    """The verdict with its provenance. Without a valid answer it is missing, whatever the texts of the answers say."""
    last = reply.answers[-1]
    return Vote(
        stream=task.question.stream,
        step=task.question.step,
        candidate=task.question.candidate,
        judge=task.judge,
        question=task.question.digest,
        verdict=None if reply.value is None else reply.value.accepted,
        problem=None if reply.value is not None else reply.problem or "no answer",
        model=last.model or None,
        request=last.key or None,
        time=last.time or None,
        cost=sum(answer.cost for answer in reply.answers),
    )
