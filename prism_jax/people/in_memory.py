"""A person in front of a gate, in memory (docs/maths.md, section 13); what is kept on a disk is the agent's."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from prism_jax.decision import gate as formulas
from prism_jax.decision.arrays import sigmoid
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.person import (
    DEFAULT,
    Belief,
    believe,
    bonus,
    clipped_log_odds,
    predict,
    threshold_on_predicted,
    update,
)
from prism_jax.decision.verdict import Verdict

_ANSWERING = threading.Lock()
"""Held while an answer is taken, which takes microseconds; being no part of a gate, it does not stop its copies."""


@dataclasses.dataclass(slots=True)
class Offer:
    """An offer to a person, until it is answered."""

    person: str
    log_odds: float  # of the calibrated p_accept for people as a whole
    answered: bool = False


@dataclasses.dataclass(frozen=True)
class Person:
    """A person in front of a gate, which `Gate.person` gives: decides as the gate, on their own rate of acceptance.

    Whoever has not answered yet is decided on as everybody, but for the benefit of the doubt that the gate gives where
    silence is cheap (c_fn <= c_fa). Threads may share a person.
    """

    name: str
    gate: Callable[..., Verdict]  # decides for anybody
    point: OperatingPoint
    beliefs: dict[str, Belief] = dataclasses.field(repr=False)  # of everybody who answered, shared with the gate

    @property
    def belief(self) -> Belief:
        """Mean and variance of the person's own rate, in log-odds; a mean above 0 accepts more than others."""
        return self.beliefs.get(self.name, believe(DEFAULT))

    def __call__(self, p_need: Any = None, p_accept: Any = None, *, domain: Any = None, score: Any = None) -> Verdict:
        """Decides on two numbers; arguments and errors are those of the gate, but for arrays, which are refused.

        The verdict has the p_accept of this person, and the threshold on it.
        """
        verdict, belief = self.gate(p_need, p_accept, domain=domain, score=score), self.belief
        if np.ndim(verdict.speak):
            found = f"found decisions of the shape {np.shape(verdict.speak)}, expected numbers"
            raise ValueError(f"p_need, p_accept: {found}: a person answers one offer at a time")
        point, content = self.point, float(clipped_log_odds(verdict.p_accept))
        own, added = float(predict(belief, content, DEFAULT)), bonus(belief, point.cost_ratio)
        compared, costs = float(sigmoid(own + added)), (point.c_fa, point.c_fn)
        speak = formulas.decide(verdict.p_need, compared, *costs, point.policy, fixed_threshold=point.fixed_threshold)
        return dataclasses.replace(
            verdict,
            speak=bool(speak),
            p_accept=float(sigmoid(own)),
            threshold=threshold_on_predicted(verdict.threshold, added),
            offer=Offer(self.name, content) if speak else None,
        )

    def learn(self, verdict: Verdict, *, accepted: bool | np.bool_) -> None:
        """Takes the person's answer to an offer, once; an offer that was ignored was not accepted.

        Raises:
          ValueError: for a verdict that is silent, of somebody else or of nobody, or has its answer; nothing is then
            learnt.
        """
        if accepted not in (0, 1):
            raise ValueError(f"accepted: found {accepted!r:.80}, expected True or False")
        offer = getattr(verdict, "offer", None)
        if offer is None or offer.person != self.name:
            found = f"one of {offer.person!r}" if offer else "one of the gate alone" if verdict else "silence"
            raise ValueError(f"verdict: found {found}, expected an offer that person({self.name!r}) made")
        with _ANSWERING:
            if offer.answered:
                raise ValueError("verdict: found one that has its answer, expected one answer to each offer")
            after = update(self.belief, offer.log_odds, float(accepted), DEFAULT)
            self.beliefs[self.name], offer.answered = Belief(float(after.mean), float(after.variance)), True

    def forget(self) -> None:
        """Deletes what the person's answers have taught."""
        with _ANSWERING:
            self.beliefs.pop(self.name, None)
