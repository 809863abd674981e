"""Ways of asking a model behind an endpoint about a step: for probabilities, for votes, or told the costs.

The first two ask what a judge is asked (`prism_jax.labelling.judges.prompts`): whether the user accepts silence, and
each offer.
A model that is told the costs chooses one of the offers that a teacher is shown, or silence. A step without an
answer that can be read is silence; where probabilities are asked for, it gets the mean of those that were read. Left
out, it would be the model that chooses at which steps it is judged. How many there are is said.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import pydantic

from prism_jax.experiments.field.interface import Baseline, Decisions, Fold, Run, rows_of_streams, sampled_steps
from prism_jax.labelling.judges.judging import Verdict
from prism_jax.labelling.judges.prompts import JUDGE, MOST_EVENTS, SYSTEM, questions
from prism_jax.labelling.teacher.labelling import Probability, TeacherAnswer
from prism_jax.labelling.teacher.prompts import PromptSettings, question, task
from prism_jax.remote.client import Client
from prism_jax.remote.jobs import all_of, open_clients, work_through
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import Reply, ask_for
from prism_jax.runtime.command import say
from prism_jax.scores import Scores
from prism_jax.streams import Candidate, Event, Stream

VOTES = 10
"""Number of answers of which the share of yes is a probability."""
RETRIES = 2
"""How often a model is told what is wrong with an answer; a vote counts as it comes."""
SHOWN = PromptSettings(offers="given")
T = TypeVar("T")
Answers = dict[tuple[str, int], T | None]
"""By stream and number of the step; None where no answer can be read."""
Found = tuple[T | None, str | None]
"""An answer, or why there is none."""


class Probabilities(NamedTuple):
    """What a model says of one step."""

    need: float | None  # None where it was not asked for
    accept: tuple[float, ...]  # of each candidate


class Sampled(NamedTuple):
    """A stream of which steps are in the sample."""

    stream: Stream  # with these steps alone
    numbers: tuple[int, ...]  # of the steps in the whole stream


def sampled(streams: Sequence[Stream], run: Run) -> list[Sampled]:
    """The streams with their steps of the sample, in order."""
    numbers: collections.defaultdict[int, list[int]] = collections.defaultdict(list)
    for place, number in sampled_steps(streams, run):
        numbers[place].append(number)
    return [
        Sampled(dataclasses.replace(streams[place], steps=tuple(streams[place].steps[one] for one in own)), tuple(own))
        for place, own in numbers.items()
    ]


def ask(
    streams: Sequence[Stream],
    run: Run,
    work: Callable[[Client, Stream], Awaitable[Sequence[Found[T]]]],
    label: str,
    **changes: Any,
) -> Answers[T]:
    """Asks the run's endpoint, with some of its settings changed, about the sample.

    `work` takes a stream with these steps alone, and returns what it found at each. Answers are in the cache as soon
    as they arrive. Raises RuntimeError where none arrives at all, and what `Client.ask` raises.
    """
    assert run.endpoint is not None, "the registry says what a baseline needs"
    endpoint, samples = dataclasses.replace(run.endpoint, **changes), sampled(streams, run)
    with open_clients(run.remote, {"endpoint": endpoint}) as (clients, tally):
        work_on = functools.partial(work, clients["endpoint"])
        found = work_through(
            (sample.stream for sample in samples),
            work_on,
            at_once=endpoint.concurrency,
            total=len(samples),
            label=label,
            tally=tally,
        )
        answers = {
            (sample.stream.id, number): answer
            for sample, of_stream in zip(samples, found, strict=True)
            for number, answer in zip(sample.numbers, of_stream, strict=True)
        }
    problems = collections.Counter(problem for _, problem in answers.values() if problem is not None)
    if tally.failed == tally.requests:
        tally.check_answered(len(answers), problems)
    say(f"{label}: {'; '.join(tally.lines())}")
    say_missing(label, len(answers), problems)
    return {key: answer for key, (answer, _) in answers.items()}


def say_missing(label: str, steps: int, problems: Mapping[str, int]) -> None:
    """Says at how many steps there is no answer, and the most frequent reason."""
    if problems:
        reason, count = collections.Counter(problems).most_common(1)[0]
        say(f"{label}: {sum(problems.values())} of {steps} steps have no answer; at {count}: {reason}")


def scores_of(fold: Fold, run: Run, answers: Answers[Probabilities]) -> Scores:
    """The scores of the sample; a step without an answer gets the mean of the others, one half without any."""
    unknown = Probabilities(0.5 if fold.need else None, (0.5,))
    read = [answer for answer in answers.values() if answer is not None] or [unknown]
    needs = [answer.need for answer in read if answer.need is not None]
    need = float(np.mean(needs)) if needs else None
    accept = float(np.mean(np.concatenate([answer.accept for answer in read])))

    def rows() -> Iterator[dict[str, Any]]:
        for stream, numbers in sampled(fold.test, run):
            filled = [
                answers[stream.id, number] or Probabilities(need, (accept,) * len(step.candidates))
                for number, step in zip(numbers, stream.steps, strict=True)
            ]
            of_needs = [one.need for one in filled if one.need is not None]
            of_offers = [p for one in filled for p in one.accept]
            for row in rows_of_streams([stream], of_needs or None, of_offers, split="test", fold=fold.number):
                yield row | {"step": numbers[row["step"]]}

    return Scores.from_rows(rows())


class Stated(TeacherAnswer):
    """The probability that what was asked about is accepted."""

    probability: Probability


def score_stated(fold: Fold, run: Run) -> Scores:
    """The probabilities that the model states, each to a question of its own."""
    system = f'{JUDGE}{{"probability": P}}, where P, from 0 to 1, is how likely the user is to accept it.'

    async def state(client: Client, text: str) -> Found[float]:
        reply = await ask_for(client, _messages(system, text), Stated, RETRIES)
        return (None if reply.value is None else reply.value.probability), reply.problem

    return scores_of(fold, run, ask(fold.test, run, _of_questions(fold, state), STATED.label))


def score_votes(fold: Fold, run: Run) -> Scores:
    """The shares of yes among `VOTES` seeded answers at temperature 1; those that cannot be read do not count."""

    async def vote(client: Client, text: str) -> Found[float]:
        messages = _messages(SYSTEM, text)
        replies = await all_of(ask_for(client, messages, Verdict, 0, attempt) for attempt in range(VOTES))
        votes = [reply.value.accepted for reply in replies if reply.value is not None]
        return (sum(votes) / len(votes), None) if votes else (None, replies[0].problem)

    assert run.endpoint is not None, "the registry says what a baseline needs"
    warm = None if run.endpoint.temperature is None else 1.0  # None where the model takes no temperature
    votes = ask(fold.test, run, _of_questions(fold, vote), VOTED.label, temperature=warm, seed=run.seed)
    return scores_of(fold, run, votes)


def _of_questions(
    fold: Fold, work: Callable[[Client, str], Awaitable[Found[float]]]
) -> Callable[[Client, Stream], Awaitable[list[Found[Probabilities]]]]:
    """Work on a stream, of work on the text of each question about it; need is that silence is not accepted.

    Where nobody reads a p_need, nothing is asked about silence.
    """

    async def on_stream(client: Client, stream: Stream) -> list[Found[Probabilities]]:
        found: list[list[Found[float]]] = [[] for _ in stream.steps]
        asked = [one for one in questions(stream, MOST_EVENTS) if fold.need or one.candidate is not None]
        for one, answer in zip(asked, await all_of(work(client, one.text) for one in asked), strict=True):
            found[one.step].append(answer)
        return [_probabilities(of_step, fold.need) for of_step in found]

    return on_stream


def _probabilities(found: Sequence[Found[float]], need: bool) -> Found[Probabilities]:
    """Those of a step, of which every question must have an answer; the first is about silence where need is asked."""
    read = [p for p, _ in found if p is not None]
    if len(read) < len(found):
        return None, next(problem for _, problem in found if problem is not None)
    return (Probabilities(1 - read[0], tuple(read[1:])) if need else Probabilities(None, tuple(read))), None


def decide_told(fold: Fold, run: Run, ratio: float) -> Decisions:
    """What the model decides that is told both costs: C_FA = 1 and C_FN = `ratio`."""
    system = task(
        f"{SHOWN.system} An offer that is not accepted costs 1; to stay silent where an offer would have helped costs "
        f"{ratio:g}. Choose what costs least on average.",
        ('"offer" (the number of the listed offer to make now, counted from 1, or 0 to stay silent)',),
    )

    async def choose(client: Client, events: Sequence[Event], offers: Sequence[Candidate]) -> Found[int]:
        number = Annotated[int, pydantic.Field(ge=0, le=len(offers), strict=True)]
        kind = pydantic.create_model("Choice", __base__=TeacherAnswer, offer=(number, ...))
        shown = question(events, offers, SHOWN)
        reply: Reply[Any] = await ask_for(client, _messages(system, shown), kind, RETRIES)
        return (None if reply.value is None else reply.value.offer), reply.problem

    async def on_stream(client: Client, stream: Stream) -> list[Found[int]]:
        steps = ((stream.events[: step.event + 1], step.candidates) for step in stream.steps)
        return await all_of(choose(client, *step) for step in steps)

    chosen = ask(fold.test, run, on_stream, f"{TOLD.label}, 1:{ratio:g}")
    return {key: number - 1 if number else None for key, number in chosen.items()}


def _messages(system: str, text: str) -> tuple[Message, Message]:
    return Message("system", system), Message("user", text)


STATED = Baseline("stated", "stated probabilities", score_stated, needs=("endpoint",), fitted=False)
VOTED = Baseline("votes", f"share of {VOTES} votes", score_votes, needs=("endpoint",), fitted=False)
TOLD = Baseline("told_costs", "told the costs", decide=decide_told, needs=("endpoint",), fitted=False)
