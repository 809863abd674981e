"""The two moments of a decision that a live agent and a replay share: who thinks, and what is done.

Both work on steps of distinct streams whose events the ledger has noted as read.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism_jax.agent.gating import fires, gated
from prism_jax.agent.ledger import Ledger
from prism_jax.agent.reasons import choose
from prism_jax.agent.steps import Step


def ask_trigger(steps: Sequence[Step], ledger: Ledger) -> list[Step]:
    """Sets `fired` of steps with fast signals, and returns those whose stream's slow budget lasts for the slow pass.

    The decision on a critical event is known without thinking.
    """
    for step, fired in zip(steps, fires([s.terms for s in steps], [s.hoped(s.fast) for s in steps]), strict=True):
        step.fired = fired and not step.critical
    return [step for step in steps if step.fired and not _spent(step, ledger, "thoughts")]


def settle(steps: Sequence[Step], ledger: Ledger) -> None:
    """Sets `choice` of steps whose signals are final: gate, exploration, interruption budget, allow-list."""
    deciding = [s.hoped(s.fast if s.slow is None else s.slow) for s in steps]
    for step, gate in zip(steps, gated([s.terms for s in steps], deciding), strict=True):
        if step.known is not None:
            gate = gate._replace(
                threshold=step.known.threshold_on_predicted(gate.threshold, step.terms.point.cost_ratio)
            )
        step.choice = choose(
            step.item.stream,
            step.number,
            step.terms,
            gate,
            step.used,
            critical=step.critical,
            spent=_spent(step, ledger, "offers"),
            starved=step.fired and step.slow is None,
        )


def note(step: Step, ledger: Ledger) -> None:
    """Notes a settled step in the ledger: its offer and its thought count against the budgets of later events."""
    ledger.decided(
        step.item.stream,
        step.item.event.time,
        offer=step.offer,
        counts=not step.critical,
        thought=step.slow is not None,
        stated=step.stated,
    )


def _spent(step: Step, ledger: Ledger, kind: str) -> bool:
    """Whether the stream's budget of `offers` or `thoughts` is spent."""
    return ledger.spent(step.item.stream, step.item.event.time, kind, getattr(step.terms, kind))
