"""What answers, as the flags of `python -m prism_jax serve` say: a model alone, or the agents of all tenants."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from prism_jax.agent.exported import Exported, fingerprint, with_gate
from prism_jax.agent.reader import AsksAgain, Reader
from prism_jax.agent.service.agents import Agents, Models
from prism_jax.agent.service.answering import Answering
from prism_jax.agent.serving import decision_model, gate_of, model_of, point_changes, population_of, settings_from
from prism_jax.agent.settings import Terms
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import Gate
from prism_jax.runtime import command

if TYPE_CHECKING:
    from prism_jax.agent.decision_reader import DecisionReader
    from prism_jax.agent.state.store import StateStore

OFFERS = 256
"""Tokens of the context that are free for the offers of one request."""


def answering_of(options: Mapping[str, Any], stack: contextlib.ExitStack) -> Callable[[], Answering]:
    """What loads what answers, which `stack` closes; a model or a gate that cannot be used is refused at once."""
    # Probabilities are answered and nothing is decided, so that the costs say nothing.
    load_reader, exported = model_of({**options, "c_fa": 1.0, "c_fn": 1.0}, stack, offers=OFFERS)

    def load() -> Answering:
        reader = load_reader()
        if isinstance(reader, AsksAgain):
            reader.warm_up(writes=False)
        else:
            reader.warm_up()
        return Answering(reader, exported, streams=options["streams"] or 1024)

    return load


def load_answering(options: Mapping[str, Any]) -> Answering:
    """What answers, in the process of a replica."""
    with contextlib.ExitStack() as stack:  # which closes nothing of a model that is read here
        return answering_of(options, stack)()


def agents_of(
    options: Mapping[str, Any], tenants: Sequence[str], stack: contextlib.ExitStack, alone: bool = True
) -> tuple[Callable[[], Agents], list[StateStore]]:
    """What loads the agents, and their stores, which are opened; what cannot be used is refused at once."""
    load_model: Callable[[], Reader] | None = None
    asking: Callable[[epath.Path], DecisionReader] | None = None
    gate = gate_of(options) if options["model"] is None else None
    if gate is None:
        load_model, exported = model_of(options, stack)
        stated = with_gate(_bare(), Gate(exported.point))
    elif options["decisions"] is None:
        stated = exported = with_gate(_bare(), dataclasses.replace(gate, fitted=None))  # the caller knows which model
    else:
        stated = with_gate(_bare(), Gate(gate.point))

        def asking(path: epath.Path) -> DecisionReader:
            nonlocal exported
            reader, exported = decision_model({**options, "answers": path}, gate, stack, machines=not alone)
            return reader

    point = gate.point if gate is not None else exported.point
    settings = settings_from(options, Terms(point), point_changes(options))
    of_stores = {"partitions": options["partitions"], "population": population_of(options)}
    how = {"report": command.say, "alone": alone, "lease": options["lease"], "asking": asking}
    agents = Agents(None, options["state"], streams=options["streams"] or 10_000, **of_stores, **how)
    stack.callback(agents.close)
    stores = agents.open(tenants)

    def load() -> Agents:
        reader = None if load_model is None else load_model()
        if reader is not None:
            reader.warm_up()
        agents.models = Models(reader, exported, stated, settings)
        return agents

    return load, stores


def load_agents(options: Mapping[str, Any], tenants: Sequence[str]) -> Agents:
    """The agents of an owner, in its own process."""
    stack = contextlib.ExitStack()  # which has the folder of an exported run until it is loaded
    return agents_of(options, tenants, stack, alone=False)[0]()


def _bare() -> Exported:
    """What stands for a prism.json where callers state numbers."""
    fingerprints = {"model": fingerprint("stated"), "config": fingerprint("stated")}
    return Exported({}, {}, OperatingPoint(), None, None, writes_responses=False, fingerprints=fingerprints)
