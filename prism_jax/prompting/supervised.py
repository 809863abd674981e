"""What a step teaches beside its labels: pathways of training fill these in, packing writes them into rows.

A lesson is a step like any other, so whatever cuts, splits or repeats steps carries it along. A plain `Step` teaches
its labels and its response, on a fast branch.
"""

from __future__ import annotations

import dataclasses

from prism_jax.streams import Candidate, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedCandidate(Candidate):
    """A candidate, and how it is taught.

    Attributes:
      accept_target: What the accept slot's cross-entropy aims at where acceptance was observed; None is the label.
      accept_answer: Answer to write at the accept slot as a token of the text; None writes none.
      accept_mu: Prediction of y_accept in [0, 1], not fitted on this candidate's label, for doubly robust losses.
      loss_factor: What the losses of its response's tokens are multiplied by.
    """

    accept_target: float | None = None
    accept_answer: bool | None = None
    accept_mu: float = 0.0
    loss_factor: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedStep(Step):
    """A step, and how it is taught.

    Attributes:
      candidates: As of a step.
      need_target: What the need slot's cross-entropy aims at where need was judged; None is the label.
      need_answer: Answer to write at the need slot as a token of the text; None writes none.
      slow: Whether the branch is slow: its rationale is written, and trained on, before the slots.
      loss_factor: What the losses of the rationale's tokens are multiplied by.
    """

    need_target: float | None = None
    need_answer: bool | None = None
    slow: bool = False
    loss_factor: float = 1.0


def supervised_step(step: Step) -> SupervisedStep:
    """The lesson itself, or the plain one of a step without."""
    return step if isinstance(step, SupervisedStep) else _extend(SupervisedStep, step)


def supervised_candidate(candidate: Candidate) -> SupervisedCandidate:
    """The lesson itself, or the plain one of a candidate without."""
    return candidate if isinstance(candidate, SupervisedCandidate) else _extend(SupervisedCandidate, candidate)


def _extend(kind: type, value: Step | Candidate):
    return kind(**{field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
