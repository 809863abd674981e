"""LangChain agents: a middleware before tools that speak to the person.

    from langchain.agents import create_agent

    from prism_jax.agent.adapters.client import Client
    from prism_jax.agent.adapters.langchain import SpeechGate

    gate = SpeechGate(Client("http://localhost:8000"), tools=["notify"], person="ada")
    agent = create_agent("openai:gpt-5", tools=[notify, write_file], middleware=[gate])

An agent of many people names the one of a call: `person=lambda call: call.runtime.context["user"]`; each has a stream
of their own in a thread. A server without a model needs numbers: `SpeechGate(..., numbers=lambda call: {"p_accept":
0.4})`.
A tool that is not named runs as it would without the gate. Where the gate is silent, the named tool does not run, and
the model reads why. It wraps the call and is no condition of an approval: what a person has rejected stays rejected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from prism_jax.agent.adapters.client import Answer, Client, message_of, stream_of


class SpeechGate(AgentMiddleware):
    """Withholds calls of `tools` where the gate is silent; a call that is resumed gets the answer of the first time."""

    def __init__(
        self,
        client: Client,
        tools: Collection[str],
        *,
        stream: str | None = None,
        person: str | Callable[[ToolCallRequest], str | None] | None = None,
        numbers: Callable[[ToolCallRequest], Mapping[str, float]] | None = None,
    ) -> None:
        """Asks for the calls of `tools`; ClientError where the server does not decide on what it would be asked.

        The stream is that of `person` in the thread of the run, or in `stream` where one is named. `numbers` gives
        `p_need` and `p_accept` of a call; without, the server reads the last message of the person, and the call's
        arguments as what would be said.
        """
        super().__init__()
        client.check(stated=numbers is not None)
        self._client, self._speech = client, frozenset(tools)
        self._stream, self._person, self._numbers = stream, person, numbers

    def ask(self, request: ToolCallRequest) -> Answer | None:
        """The answer for a call; None where the tool is none that speaks."""
        call = request.tool_call
        if call["name"] not in self._speech:
            return None
        said = [one.text for one in request.state["messages"] if one.type == "human"] or [""]
        thread = (request.runtime.config or {}).get("configurable", {}).get("thread_id", "langchain")
        numbers = {} if self._numbers is None else self._numbers(request)
        person = self._person(request) if callable(self._person) else self._person
        asked = stream_of(person, self._stream or str(thread)), message_of(call["args"])
        return self._client.answer_or_withhold(*asked, text=said[-1], person=person, key=call["id"], **numbers)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Runs the tool unless the gate is silent."""
        return _withheld(request, self.ask(request)) or handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Runs the tool unless the gate is silent, and does not block the event loop."""
        return _withheld(request, await asyncio.to_thread(self.ask, request)) or await handler(request)


def _withheld(request: ToolCallRequest, answer: Answer | None) -> ToolMessage | None:
    """What the model reads in place of the tool's result; None where there is no objection."""
    if answer is None or answer.speak:
        return None
    words = f"Not said, because an interruption is not worth it now ({answer.reason}). Continue without it."
    return ToolMessage(words, name=request.tool_call["name"], tool_call_id=request.tool_call["id"])
