"""Applies a pathway to the training streams before they are packed: selects, sets targets and answers, and weights."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from prism_jax.decision.losses import advantage_weights, reward_weights, slot_target, total_reward
from prism_jax.streams import Candidate, Step, Stream
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.student.prompting.supervised import (
    SupervisedCandidate,
    SupervisedStep,
    supervised_candidate,
    supervised_step,
)
from prism_jax.student.prompting.template import Template
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.pathways.curated import already_curated, curate, facts_of, facts_of_file, rows_of
from prism_jax.training.pathways.logged import out_of_fold_acceptance
from prism_jax.training.run_config import RunConfig


class Weights(NamedTuple):
    """Weights of text."""

    # weight of each candidate's text, 1 where it has none; the mean over the rows with text is 1
    factor: Float[np.ndarray, " n"]
    facts: dict[str, str]  # effective sample size of the weights, for the start-up report


def weigh(streams: Sequence[Stream], pathway: PathwayConfig, template: Template) -> Weights:
    """Weights the text of each candidate, in order, in proportion to exp(R_total / beta).

    A row has text if it has a response or its step's branch is slow (docs/maths.md, section 6); ValueError if none has.
    """
    rows = rows_of(streams)
    steps = [(supervised_step(step), offer) for stream in streams for step in stream.steps for offer in step.candidates]
    tokens = np.array(
        [0 if offer.response is None else len(template.response(offer.response)[1]) for _, offer in steps]
    )
    text = (tokens > 0) | np.array([step.slow for step, _ in steps])
    if not text.any():
        raise ValueError("data: found no response and no slow branch, expected some text for weighted_sft to weight")
    costs = {"c_fa": pathway.rejected_cost, "c_tok": pathway.token_cost}
    reward = np.asarray(total_reward(rows.score(pathway.score), rows.seen, rows.y_accept, tokens, **costs))[text]
    if pathway.advantage:
        _, domain = np.unique(rows.domain[text], return_inverse=True)
        baseline = (np.bincount(domain, reward) / np.bincount(domain))[domain]  # V: the mean reward of the domain
        weights = advantage_weights(reward, baseline, pathway.beta)
    else:
        weights = reward_weights(reward, pathway.beta)
    factor = np.ones(len(text))
    factor[text] = np.asarray(weights.weight)
    fact = f"effective sample size {float(weights.effective_sample_size):,.0f} of {text.sum():,} rows with text"
    return Weights(factor, {"weights": fact})


def with_slow_tokens(streams: Sequence[Stream], template: Template) -> tuple[Stream, ...]:
    """The training streams, with slow branches drawn, with the tokens of the slow pass at each step on a fast branch.

    The signals of fast branches trigger the slow pass. It writes the texts of its fields; their names come from the
    template and cost no tokens. A step without a rationale gets the mean over the steps that have one, and without any
    rationale the number is 0 everywhere.

    Raises:
      ValueError: naming the stream and step, when a rationale lacks a field.
    """
    lengths = {
        (stream.id, step.event): _length(stream, number, step, template)
        for stream in streams
        for number, step in enumerate(stream.steps)
        if step.rationale is not None
    }
    mean = float(np.mean(list(lengths.values()))) if lengths else 0.0

    def priced(stream: Stream, step: Step) -> Step:
        own = supervised_step(step)
        return dataclasses.replace(own, slow_tokens=0.0 if own.slow else lengths.get((stream.id, step.event), mean))

    return tuple(map_steps(stream, functools.partial(priced, stream)) for stream in streams)


def _length(stream: Stream, number: int, step: Step, template: Template) -> float:
    """Number of tokens of a step's rationale."""
    try:
        return float(sum(len(field.text) for field in template.slow(step.rationale or {})))
    except ValueError as error:
        raise ValueError(f"stream {stream.id!r}, steps[{number}].{error}") from error


class Supervised(NamedTuple):
    """The supervision of a pathway."""

    # Streams that have at least one step left. Their steps are `SupervisedStep`s where the pathway needs more than the
    # labels.
    streams: tuple[Stream, ...]
    loss: LossConfig  # weights and estimators of the objective
    facts: dict[str, str]  # summary of the supervision, for the start-up report


def supervise(streams: Sequence[Stream], config: RunConfig, template: Template) -> Supervised:
    """The streams and losses that the run's pathway trains on, from the training split.

    Raises:
      ValueError: if the pathway needs a teacher's probability that is missing (the message names stream and step), has
        no need label to curate by, would filter streams that are curated already, or has no text to weight.
    """
    pathway, loss = config.pathway, config.pathway.objective(config.loss)
    if config.training.soft_labels:
        streams = with_soft_labels(streams)
    if pathway.resolved.filtered:
        _check_whole(streams, pathway)
    if pathway.needs_teacher:
        _check_teacher(streams, pathway)
    supervised, facts = tuple(streams), {"pathway": str(pathway)}
    if pathway.resolved.filtered:
        curated = curate(supervised, pathway)
        supervised = curated.streams
        facts |= facts_of(curated)
    else:
        facts |= facts_of_file(supervised)
    if pathway.resolved.losses != "decision" or pathway.alpha or pathway.slow:
        supervised = _each(
            supervised,
            functools.partial(_set_step, pathway, config.training.seed),
            lambda _, offer: dataclasses.replace(
                offer,
                accept_target=_target(offer.y_accept, offer.teacher_accept, pathway),
                accept_answer=_answer(offer.teacher_accept, pathway),
            ),
        )
    if loss.slow:
        supervised = with_slow_tokens(supervised, template)
    if loss.estimator == "dr":
        supervised = _with_baseline(supervised, loss)
    if pathway.resolved.weighted:
        weights = weigh(supervised, pathway, template)
        supervised = _with_factors(supervised, weights.factor.tolist())
        facts |= weights.facts
    return Supervised(supervised, loss, facts)


def _check_whole(streams: Sequence[Stream], pathway: PathwayConfig) -> None:
    """Raises ValueError if a stream was curated before, with the setting that trains on all of its rows."""
    if done := already_curated(streams):
        raise ValueError(
            f"data: {done}, expected streams with all their rows: pathway {pathway.name} would filter them again; "
            "--config.pathway.filter=off trains on all rows of a curated file"
        )


def _check_teacher(streams: Sequence[Stream], pathway: PathwayConfig) -> None:
    """Raises ValueError for the first step or candidate without a teacher's probability."""
    for stream in streams:
        for i, step in enumerate(stream.steps):
            missing = [name for name, value in (("teacher_need", step.teacher_need),) if value is None]
            missing += [
                f"candidates[{k}].teacher_accept"
                for k, candidate in enumerate(step.candidates)
                if candidate.teacher_accept is None
            ]
            if missing:
                raise ValueError(
                    f"stream {stream.id!r}, steps[{i}].{missing[0]}: found null, expected the teacher's probability: "
                    f"pathway {pathway.name} needs it (the simulator provides it with simulator.teacher = True)"
                )


def _set_step(pathway: PathwayConfig, seed: int, stream: Stream, step: SupervisedStep) -> SupervisedStep:
    """The step with its slot target, its answer and its mode."""
    slow = is_slow(stream, step, pathway, seed)
    return dataclasses.replace(
        step,
        need_target=_target(step.y_need, step.teacher_need, pathway),
        need_answer=_answer(step.teacher_need, pathway),
        slow=slow,
        own_fields=step.own_fields if slow else None,
    )


def is_slow(stream: Stream, step: Step, pathway: PathwayConfig, seed: int) -> bool:
    """Whether a step gets a slow branch (`PathwayConfig.slow`)."""
    drawn = random.Random(f"prism_jax slow {seed} {stream.id} {step.event}").random()
    return step.rationale is not None and drawn < pathway.slow


def reads_own_fields(stream: Stream, step: Step, pathway: PathwayConfig, seed: int) -> bool:
    """Whether a step gets a slow branch that reads fields of the student itself (`PathwayConfig.own_fields`)."""
    drawn = random.Random(f"prism_jax own fields {seed} {stream.id} {step.event}").random()
    return is_slow(stream, step, pathway, seed) and drawn < pathway.own_fields


def only_own_fields(stream: Stream, pathway: PathwayConfig, seed: int) -> Stream:
    """The stream with only the steps that `reads_own_fields` chooses."""
    kept = tuple(step for step in stream.steps if reads_own_fields(stream, step, pathway, seed))
    return dataclasses.replace(stream, steps=kept)


def attach_fields(stream: Stream, fields: Mapping[tuple[str, int], Mapping[str, str] | None]) -> Stream:
    """The stream with the fields that the student wrote at some steps, which are named by stream and event."""

    def attach(step: Step) -> Step:
        own = fields.get((stream.id, step.event))
        return step if own is None else dataclasses.replace(supervised_step(step), own_fields=own)

    return map_steps(stream, attach)


def _target(label: float | None, teacher: float | None, pathway: PathwayConfig) -> float | None:
    """Returns the target of a slot's cross-entropy: a hard label, or a mix of label and teacher; None without label."""
    if label is None:
        return None
    if pathway.resolved.losses == "plain":
        return float(label >= 0.5)
    return float(slot_target(label, teacher if pathway.alpha else None, pathway.alpha))


def _answer(teacher: float | None, pathway: PathwayConfig) -> bool | None:
    """Returns the teacher's yes or no if the pathway trains on its text, else None."""
    return teacher >= 0.5 if pathway.resolved.losses == "schema" and teacher is not None else None


def _each(
    streams: Sequence[Stream],
    of_step: Callable[[Stream, SupervisedStep], SupervisedStep],
    of_candidate: Callable[[Stream, SupervisedCandidate], SupervisedCandidate],
) -> tuple[Stream, ...]:
    """Returns the streams with every step and candidate converted to its supervised form and changed."""

    def change_step(stream: Stream, step: Step) -> Step:
        own = supervised_step(step)
        return of_step(stream, map_candidates(own, lambda offer: of_candidate(stream, supervised_candidate(offer))))

    return tuple(map_steps(stream, functools.partial(change_step, stream)) for stream in streams)


def _with_baseline(streams: tuple[Stream, ...], loss: LossConfig) -> tuple[Stream, ...]:
    """Returns the streams with mu, the prediction of the doubly robust loss, set in every candidate."""
    means = out_of_fold_acceptance(streams, loss.e_min, loss.w_max).tolist()
    expected = {stream.id: mean for stream, mean in zip(streams, means, strict=True)}
    of_offer = lambda stream, offer: dataclasses.replace(offer, accept_mu=expected[stream.id])  # noqa: E731
    return _each(streams, lambda _, step: step, of_offer)


def _with_factors(streams: tuple[Stream, ...], factors: list[float]) -> tuple[Stream, ...]:
    """Returns the streams with each candidate's text weight; fields of a slow branch get the mean of its weights."""
    factor = iter(factors)

    def of_step(_: Stream, step: SupervisedStep) -> SupervisedStep:
        own = [supervised_candidate(candidate).loss_factor for candidate in step.candidates]
        return dataclasses.replace(step, loss_factor=sum(own) / len(own))

    return _each(streams, of_step, lambda _, offer: dataclasses.replace(offer, loss_factor=next(factor)))


def with_soft_labels(streams: Iterable[Stream]) -> list[Stream]:
    """Returns the streams with every acceptance label that has votes replaced by the mean of these votes."""
    return [map_candidates(stream, _soften) for stream in streams]


def _soften(candidate: Candidate) -> Candidate:
    if candidate.y_accept is None or not candidate.votes:
        return candidate
    return dataclasses.replace(candidate, y_accept=sum(candidate.votes) / len(candidate.votes))
