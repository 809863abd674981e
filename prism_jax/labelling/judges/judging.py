"""Asks every judge every question and writes their verdicts; started again, it asks only what was not answered.

Each answer is in the cache before it is used (`prism_jax.remote`). The file of verdicts is written anew from the
answers and appears when all are there, so a run that was killed loses nothing, and no reader sees a partial file.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import json5
import pydantic
from etils import epath

from prism_jax.labelling.judges.ballots import PanelConfig
from prism_jax.labelling.judges.prompts import MOST_EVENTS, OFFICIAL, OURS, SYSTEM, Asked, Question, questions, unasked
from prism_jax.labelling.judges.votes import Vote, VoteKey, merge_votes, read_votes
from prism_jax.remote import jobs
from prism_jax.remote.client import Client
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Answer, Message, Request
from prism_jax.remote.structured import LONGEST_TOKEN, Reply, ask_for
from prism_jax.remote.tally import Tally
from prism_jax.runtime.dataclass_config import check, check_at_least
from prism_jax.runtime.files import check_folder_of
from prism_jax.streams import Stream
from prism_jax.streams.published.prompts import JudgePrompt, read_judge_prompt

ATTEMPTS = 10
"""How often a question in the benchmark's form is asked at most, until an answer can be read."""
GREEDY = 2
"""How many of the first of these attempts have temperature 0; the others have `WARM`."""
WARM = 0.5
_CODE = re.compile(r"\A\s*```\w*\n(.*)\n\s*```\s*\Z", re.DOTALL)


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
    most_events: int = MOST_EVENTS  # maximum number of events that a question shows, the newest ones
    # how often an invalid answer is returned to the judge with what is wrong with it (prompt = ours)
    retries: int = 2
    # `ours` (prism_jax/labelling/judges/prompts.py), or `official`: ProactiveBench's own, read from the checkout
    # `source`. That shows all events, whatever `most_events` says, and answers begin with a thought.
    prompt: Literal["ours", "official"] = "ours"
    source: str = ""  # folder of a checkout of ProactiveBench's repository; needed with prompt = official
    official_tokens: int = 1024  # least `max_tokens` of every judge with prompt = official: room for the thought

    def __post_init__(self) -> None:
        check(self, "name", bool(self.name.strip()), "words")
        if len(self.endpoints) % 2 == 0:
            raise ValueError(f"endpoints: found {len(self.endpoints)} judges, expected an odd number, such as 3")
        check_at_least(self, 1, "most_events", "official_tokens")
        check_at_least(self, 0, "retries")
        if self.prompt == OFFICIAL and not self.source:
            raise ValueError(
                "source: found none with prompt = 'official', expected the folder of a checkout of ProactiveBench's "
                "repository, which has the prompt"
            )

    def published(self) -> JudgePrompt | None:
        """The benchmark's prompt from the checkout; None where the prompt is ours. Errors as of `read_judge_prompt`."""
        return read_judge_prompt(self.source) if self.prompt == OFFICIAL else None

    def prompt_name(self) -> str:
        """The prompt's name, as verdicts state it."""
        published = self.published()
        return published.name if published else OURS


class Verdict(pydantic.BaseModel):
    """A judge's answer: one boolean. Our form accepts nothing else, so that no reasoning is kept."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    accepted: bool = pydantic.Field(description="Whether this user would accept it now.")


class Judged(NamedTuple):
    """What came of asking: the counts of the job, and how many verdicts there are and are missing."""

    tally: Tally
    verdicts: int
    missing: int
    unasked: int  # offers without a text about which the prompt has no question


class _Task(NamedTuple):
    question: Question
    judge: str


def judge_streams(
    streams: Iterable[Stream],
    config: JudgesConfig,
    path: epath.PathLike,
    *,
    dry_run: bool = False,
    label: str = "judge",
) -> Judged:
    """Asks the judges about streams and writes their verdicts.

    The file at `path` is replaced atomically at the end. Verdicts that it holds by then, on other questions or of other
    judges, are kept, and so are those on the same questions to which there is no valid answer now; so one file may
    serve several panels, several systems and several runs at once. Two systems' outputs on the same streams may follow
    each other. A dry run sends and writes nothing, and only estimates what it would cost.

    Raises:
      FileNotFoundError: if the folder of `path` does not exist.
      PromptError: if the checkout's script does not hold the prompt.
      VotesError: if the file exists and holds anything but verdicts.
      ValueError: naming the section, for an endpoint that cannot be used.
      RuntimeError: if the budget would be passed, an endpoint refuses every request, or none gave a valid answer.
    """
    path, streams = epath.Path(path), list(streams)
    check_folder_of(path)
    if path.exists():
        collections.deque(read_votes(path), maxlen=0)  # what is wrong in it is an error before judges are asked
    published, endpoints = config.published(), config.endpoints
    if published:
        endpoints = {
            name: dataclasses.replace(one, max_tokens=max(one.max_tokens, config.official_tokens))
            for name, one in endpoints.items()
        }
    name = published.name if published else OURS
    left_out = unasked(streams, config.asked, name)
    total = len(endpoints) * sum(1 for _ in _distinct(streams, config, name))
    with open_clients(config.remote, endpoints, dry_run=dry_run) as (clients, tally):
        verdicts = jobs.work_through(
            (_Task(question, judge) for question in _distinct(streams, config, name) for judge in clients),
            lambda task: _ask(task, clients[task.judge], config.retries, published),
            at_once=2 * sum(endpoint.concurrency for endpoint in config.endpoints.values()),
            total=total,
            label=label,
            tally=tally,
        )
        if dry_run:
            return Judged(tally, total, sum(1 for _ in verdicts), left_out)
        votes = list(verdicts)
        problems = collections.Counter(vote.problem for vote in votes if vote.problem is not None)
        tally.check_answered(len(votes), problems)
        merged = merge_votes(path, votes)
    return Judged(tally, total, sum(vote.verdict is None for vote in merged), left_out)


def _distinct(streams: Iterable[Stream], config: JudgesConfig, prompt: str) -> Iterator[Question]:
    """Every question once; two systems share their questions about silence."""
    seen: set[VoteKey] = set()
    for stream in streams:
        for question in questions(stream, config.most_events, config.asked, prompt):
            key = VoteKey(question.digest, question.stream, question.step, question.candidate, "", prompt)
            if key not in seen:
                seen.add(key)
                yield question


async def _ask(task: _Task, client: Client, retries: int, published: JudgePrompt | None) -> Vote:
    """One judge's verdict on one question."""
    if published:
        _, observations, proposed = json.loads(task.question.text)
        messages = (Message("system", published.system), Message("user", published.user(observations, proposed)))
        return _vote(task, await _ask_as_published(client, messages))
    messages = (Message("system", SYSTEM), Message("user", task.question.text))
    return _vote(task, await ask_for(client, messages, Verdict, retries))


async def _ask_as_published(client: Client, messages: tuple[Message, ...]) -> Reply[Verdict]:
    """Asks as the benchmark's script does: again, as a new request without feedback, until an answer can be read.

    Where no attempt succeeds, the script stops; here the first answer counts that is readable but for a fence of code
    around it, and without one there is no verdict.
    """
    answers: list[Answer] = []
    for attempt in range(ATTEMPTS):
        temperature = 0.0 if attempt < GREEDY else WARM
        answer = await client.ask(Request(messages, attempt=attempt, temperature=temperature))
        answers.append(answer)
        if not answer.time:  # none arrived, for as long as the endpoint's patience lasted
            return Reply(None, answer.error, tuple(answers))
        if (accepted := read_judgement(answer.text, client.endpoint.max_tokens)) is not None:
            return Reply(Verdict(accepted=accepted), None, tuple(answers))
    for answer in answers:
        code = _CODE.match(answer.text or "")
        if code and (accepted := read_judgement(code[1], client.endpoint.max_tokens)) is not None:
            return Reply(Verdict(accepted=accepted), None, tuple(answers))
    cut = ", the last one cut short at the longest length allowed" if answers[-1].finish == "length" else ""
    problem = f"found no JSON with a judgement in any of {ATTEMPTS} answers{cut}, expected one"
    return Reply(None, problem, tuple(answers))


def read_judgement(text: str | None, most_tokens: int) -> bool | None:
    """Whether an answer accepts, read as the benchmark's script reads it; None where it cannot be read.

    The answer is JSON5, and its `judgement` is exactly the word accepted or else, whatever it is, a rejection.
    """
    if text is None or len(text) > LONGEST_TOKEN * most_tokens:  # only a server that ignores limits sends more
        return None
    try:
        return bool(json5.loads(text)["judgement"] == "accepted")
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


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
        prompt=task.question.prompt,
    )
