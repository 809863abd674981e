"""The OpenAI Agents SDK: a guardrail on the input of tools that speak to the person.

    from agents import function_tool

    from prism_jax.agent.adapters.client import Client
    from prism_jax.agent.adapters.openai_agents import speech_guardrail

    gate = speech_guardrail(Client("http://localhost:8000"), "chat", numbers=lambda data: {"p_accept": 0.6})

    @function_tool(tool_input_guardrails=[gate])
    def notify(message: str) -> str: ...

Where the gate is silent, the tool does not run and the model reads why. Otherwise the guardrail returns the SDK's
`allow`, which is the absence of an objection and no approval: a tool with `needs_approval` still waits for its person.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

try:
    from agents import ToolGuardrailFunctionOutput, ToolInputGuardrail, ToolInputGuardrailData
except ImportError as error:
    raise ImportError(f"found no OpenAI Agents SDK ({error}), expected it: pip install openai-agents") from error

from prism_jax.agent.adapters.client import Client, message_of, stream_of


def speech_guardrail(
    client: Client,
    stream: str | Callable[[ToolInputGuardrailData], str],
    *,
    person: str | Callable[[ToolInputGuardrailData], str | None] | None = None,
    text: Callable[[ToolInputGuardrailData], str] = lambda data: "",
    numbers: Callable[[ToolInputGuardrailData], Mapping[str, float]] | None = None,
) -> ToolInputGuardrail:
    """A guardrail for tools that speak; a call that is resumed gets the answer of the first time.

    Each `person` has a stream of their own in the thread that `stream` names. ClientError where the server does not
    decide on what it would be asked. `numbers` gives `p_need` and `p_accept` of a call. Without, the server reads
    `text`, what has happened, and the call's arguments as what would be said.
    """
    client.check(stated=numbers is not None)

    async def speech(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        call = data.context
        who = person(data) if callable(person) else person
        answer = await asyncio.to_thread(
            client.answer_or_withhold,
            stream_of(who, stream(data) if callable(stream) else stream),
            message_of(json.loads(call.tool_arguments or "{}")),
            text=text(data),
            person=who,
            key=call.tool_call_id,
            **({} if numbers is None else numbers(data)),
        )
        if answer.speak:
            return ToolGuardrailFunctionOutput.allow(answer._asdict())
        words = f"Not said, because an interruption is not worth it now ({answer.reason}). Continue without it."
        return ToolGuardrailFunctionOutput.reject_content(words, answer._asdict())

    return ToolInputGuardrail(speech, name="speech")
