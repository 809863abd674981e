"""A model that is prompted as ProactiveBench's own agent: after an event it offers something, or says nothing.

Nobody judged its own offers, so where it speaks, the first offer of the step counts as made.
"""

from __future__ import annotations

import functools

from prism_jax.experiments.field.asked import Found, ask
from prism_jax.experiments.field.interface import Baseline, Decisions, Fold, Run
from prism_jax.proactivebench.prompted import OURS, prompt_stream
from prism_jax.remote.client import Client
from prism_jax.streams import Stream
from prism_jax.streams.published.prompts import AgentPrompt, read_agent_prompt
from prism_jax.streams.traces import TraceEvent, time_of


def decide_as_agent(fold: Fold, run: Run, ratio: float) -> Decisions:
    """What the agent does at the steps of the sample, whatever the costs.

    It is asked about every event up to the last of these steps, as it sees its own answers to the events before. The
    prompt is that of the checkout `run.checkout`, and `OURS` without one.
    """
    prompt = OURS if run.checkout is None else read_agent_prompt(run.checkout)
    spoke = ask(fold.test, run, functools.partial(_ask, prompt), AGENT.label)
    return {key: 0 if offers else None for key, offers in spoke.items()}


async def _ask(prompt: AgentPrompt, client: Client, stream: Stream) -> list[Found[bool]]:
    """Whether the agent speaks at each step."""
    seen = stream.events[: stream.steps[-1].event + 1]
    trace = tuple(TraceEvent(time_of(event), event.text) for event in seen)
    prompted = await prompt_stream((stream.id, trace), client, prompt)
    problems = [prompted.rows[step.event].problem for step in stream.steps]
    return [
        (None if problem else bool(prompted.trace[step.event].answer), problem)
        for step, problem in zip(stream.steps, problems, strict=True)
    ]


AGENT = Baseline("agent", "prompted agent", decide=decide_as_agent, needs=("endpoint",), fitted=False)
