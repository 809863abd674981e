"""Selects the training streams of a pathway and gives their steps and candidates training targets, before packing."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from prism_jax.decision.losses import slot_target
from prism_jax.prompting.supervised import SupervisedCandidate, SupervisedStep, supervised_candidate, supervised_step
from prism_jax.prompting.template import Template
from prism_jax.streams import Step, Stream
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.training.config import RunConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathways.curated import curate, weigh
from prism_jax.training.pathways.logged import out_of_fold_acceptance
from prism_jax.training.pathways.table import PathwayConfig


class Supervised(NamedTuple):
    """What a pathway trains on.

    Attributes:
      streams: Training streams that still have a step. Steps and candidates carry training targets
        (`prism_jax.prompting.supervised`) if the pathway trains on more than their labels.
      loss: Weights and estimators of the objective.
      facts: Summary of the data, for the start-up report.
    """

    streams: tuple[Stream, ...]
    loss: LossConfig
    facts: dict[str, str]


def supervise(streams: Sequence[Stream], config: RunConfig, template: Template) -> Supervised:
    """Applies the run's pathway to the training split.

    Args:
      streams: The training split.
      config: Config of the run; the pathway, the loss and the seed are read.
      template: Template that counts the tokens of responses.

    Raises:
      ValueError: if a teacher's probability is missing, naming stream and step; if there is no text to weight.
    """
    pathway, loss = config.pathway, config.pathway.objective(config.loss)
    if pathway.asks_teacher:
        _check_teacher(streams, pathway)
    taught, facts = tuple(streams), {"pathway": str(pathway)}
    if pathway.recipe.filtered:
        taught, curated = curate(taught, pathway)
        facts |= curated
    if pathway.recipe.losses != "decision" or pathway.alpha or pathway.slow:
        taught = _each(taught, _step_of(pathway, config.training.seed), _candidate_of(pathway))
    if loss.estimator == "dr":
        taught = _with_baseline(taught, loss)
    if pathway.recipe.weighted:
        weights = weigh(taught, pathway, template)
        taught = _with_factors(taught, weights.factor.tolist())
        facts |= weights.facts
    return Supervised(taught, loss, facts)


def _check_teacher(streams: Sequence[Stream], pathway: PathwayConfig) -> None:
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
                    f"pathway {pathway.name} asks for it (the simulator gives it with simulator.teacher = True)"
                )


def _step_of(pathway: PathwayConfig, seed: int) -> Callable[[Stream, SupervisedStep], SupervisedStep]:
    """Returns a function that sets the slot target and the answer of a step, and whether its branch is slow."""

    def teach_step(stream: Stream, step: SupervisedStep) -> SupervisedStep:
        drawn = random.Random(f"prism_jax slow {seed} {stream.id} {step.event}").random()
        return dataclasses.replace(
            step,
            need_target=_target(step.y_need, step.teacher_need, pathway),
            need_answer=_answer(step.teacher_need, pathway),
            slow=step.rationale is not None and drawn < pathway.slow,
        )

    return teach_step


def _candidate_of(pathway: PathwayConfig) -> Callable[[Stream, SupervisedCandidate], SupervisedCandidate]:
    """Returns a function that sets the slot target and the answer of a candidate."""

    def teach_candidate(_: Stream, candidate: SupervisedCandidate) -> SupervisedCandidate:
        return dataclasses.replace(
            candidate,
            accept_target=_target(candidate.y_accept, candidate.teacher_accept, pathway),
            accept_answer=_answer(candidate.teacher_accept, pathway),
        )

    return teach_candidate


def _target(label: float | None, teacher: float | None, pathway: PathwayConfig) -> float | None:
    """Target of a slot's cross-entropy: the hard label, or the label mixed with the teacher's; None without a label."""
    if label is None:
        return None
    if pathway.recipe.losses == "plain":
        return float(label >= 0.5)
    return float(slot_target(label, teacher if pathway.alpha else None, pathway.alpha))


def _answer(teacher: float | None, pathway: PathwayConfig) -> bool | None:
    """The teacher's answer (True = yes), if the pathway trains on the teacher's text; otherwise None."""
    return teacher >= 0.5 if pathway.recipe.losses == "schema" and teacher is not None else None


def _each(
    streams: Sequence[Stream],
    of_step: Callable[[Stream, SupervisedStep], SupervisedStep],
    of_candidate: Callable[[Stream, SupervisedCandidate], SupervisedCandidate],
) -> tuple[Stream, ...]:
    """Returns the streams with `of_step` and `of_candidate` applied to every step and candidate with targets."""

    def one(stream: Stream, step: Step) -> Step:
        own = supervised_step(step)
        return of_step(stream, map_candidates(own, lambda offer: of_candidate(stream, supervised_candidate(offer))))

    return tuple(map_steps(stream, functools.partial(one, stream)) for stream in streams)


def _with_baseline(streams: tuple[Stream, ...], loss: LossConfig) -> tuple[Stream, ...]:
    """Returns the streams with `accept_mu` set on every candidate (`logged.out_of_fold_acceptance`)."""
    means = out_of_fold_acceptance(streams, loss.e_min, loss.w_max).tolist()
    expected = {stream.id: mean for stream, mean in zip(streams, means, strict=True)}

    def of_candidate(stream: Stream, candidate: SupervisedCandidate) -> SupervisedCandidate:
        return dataclasses.replace(candidate, accept_mu=expected[stream.id])

    return _each(streams, lambda _, step: step, of_candidate)


def _with_factors(streams: tuple[Stream, ...], factors: list[float]) -> tuple[Stream, ...]:
    """Returns the streams with these factors on the candidates' text; a step gets the mean factor of its candidates."""
    factor = iter(factors)

    def of_step(_: Stream, step: SupervisedStep) -> SupervisedStep:
        own = [supervised_candidate(candidate).loss_factor for candidate in step.candidates]
        return dataclasses.replace(step, loss_factor=sum(own) / len(own))

    return _each(streams, of_step, lambda _, offer: dataclasses.replace(offer, loss_factor=next(factor)))
