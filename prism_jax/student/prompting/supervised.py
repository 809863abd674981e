"""Steps and candidates with training targets in addition to their labels.

Training pathways set the targets; packing writes them into rows. The classes extend `Step` and `Candidate`, so that
code which cuts, splits or repeats steps keeps the targets. A plain `Step` is trained on its labels and its response, on
a fast branch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from prism_jax.streams import Candidate, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedCandidate(Candidate):
    """A candidate with its training targets."""

    # target of the accept slot's cross-entropy in [0, 1], where acceptance was observed; None means the label
    accept_target: float | None = None
    # answer (True = yes) that is also trained as the next token at the accept slot; None means none
    accept_answer: bool | None = None
    # prediction of y_accept in [0, 1], not fitted on this candidate's label, for doubly robust losses
    accept_mu: float = 0.0
    loss_factor: float = 1.0  # factor on the losses of the tokens of the response and of `accept_answer`


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupervisedStep(Step):
    """A step with its training targets."""

    # target of the need slot's cross-entropy in [0, 1], where need was judged; None means the label
    need_target: float | None = None
    # answer (True = yes) that is also trained as the next token at the need slot; None means none
    need_answer: bool | None = None
    # whether the branch is slow: the rationale stands before the slots and its tokens are trained on
    slow: bool = False
    # fields that the student itself wrote: a slow branch reads them in place of the rationale, and their tokens are not
    # trained on; None reads and trains on the rationale
    own_fields: Mapping[str, str] | None = None
    # number of tokens that the slow pass would write at this step, on a fast branch of a student that trains slow
    # branches; 0 where the burden prices no slow pass
    slow_tokens: float = 0.0
    loss_factor: float = 1.0  # factor on the losses of the tokens of the rationale and of `need_answer`


def supervised_step(step: Step) -> SupervisedStep:
    """The step itself if it has training targets, else a copy with default targets."""
    return step if isinstance(step, SupervisedStep) else _extend(SupervisedStep, step)


def supervised_candidate(candidate: Candidate) -> SupervisedCandidate:
    """The candidate itself if it has training targets, else a copy with default targets."""
    return candidate if isinstance(candidate, SupervisedCandidate) else _extend(SupervisedCandidate, candidate)


def _extend(kind: type, value: Step | Candidate):
    extended: Any = object.__new__(kind)  # its values have been checked, and the class has the defaults of the others
    vars(extended).update(vars(value))
    return extended
