"""The guardrail for the OpenAI Agents SDK, run by the SDK's own runner on a fake model."""

import asyncio
import json
import types
import uuid

import pytest

from prism_jax.agent.adapters.client import Client

pytestmark = pytest.mark.study  # the SDK takes two seconds to import


@pytest.fixture(scope="module")
def sdk():
    """`run`, which says what was said, what the model reads of it, and the result; and `guardrail`."""
    agents = pytest.importorskip("agents", reason="openai-agents is what is served here")
    from agents.items import ModelResponse
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from prism_jax.agent.adapters.openai_agents import speech_guardrail

    class Model(agents.Model):
        """Calls `notify` once, and then ends."""

        def __init__(self, call):
            self.call, self.seen = call, []

        async def get_response(self, system_instructions, input, *_, **__):
            self.seen.append(input)
            arguments = json.dumps({"message": "Build is red"})
            call = ResponseFunctionToolCall(arguments=arguments, call_id=self.call, name="notify", type="function_call")
            text = ResponseOutputText(annotations=[], text="Done.", type="output_text")
            last = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[call if len(self.seen) == 1 else last], usage=Usage(), response_id=None)

        def stream_response(self, *_, **__):
            raise NotImplementedError

    def run(gate, call=None, **more):
        said = []

        @agents.function_tool(tool_input_guardrails=[gate], **more)
        def notify(message: str) -> str:
            """Tells the person."""
            said.append(message)
            return "told"

        model = Model(call or f"call-{uuid.uuid4()}")
        agent = agents.Agent("helper", model=model, tools=[notify])
        config = agents.RunConfig(tracing_disabled=True)
        result = asyncio.run(agents.Runner.run(agent, "Fix the build.", run_config=config))
        outputs = [one["output"] for one in model.seen[-1] if one.get("type") == "function_call_output"]
        return said, outputs, result

    return types.SimpleNamespace(run=run, guardrail=speech_guardrail)


def test_silence_rejects_the_content_and_the_agent_goes_on(sdk, client, records):
    gate = sdk.guardrail(client, "agents", person="ada", numbers=lambda _: {"p_need": 0.9, "p_accept": 0.1})
    said, (output,), result = sdk.run(gate)
    assert said == [] and output.startswith("Not said, because an interruption is not worth it now (silent: 0.1")
    assert result.final_output == "Done."
    (record,) = records("ada%2Fagents")
    assert record["candidate"] == "Build is red" and record["person"]["name"] == "ada"


def test_where_it_speaks_the_tool_runs(sdk, client, server, monkeypatch):
    said, outputs, _ = sdk.run(sdk.guardrail(client, lambda data: "agents 2", numbers=lambda _: {"p_accept": 0.9}))
    assert (said, outputs) == (["Build is red"], ["told"])
    monkeypatch.setattr("prism_jax.agent.adapters.client.clock", types.SimpleNamespace(time=lambda: 1.0))
    event = {"time": 1.0, "text": "It failed.", "candidates": ["Build is red"]}
    wanted = server.ask("/v1/streams/beside-agents/events", event)[1]["speak"]
    assert sdk.run(sdk.guardrail(client, "agents 3", text=lambda _: "It failed."))[0] == ["Build is red"][: int(wanted)]


def test_a_call_that_is_run_again_gets_the_same_answer(sdk, client, nowhere):
    for p_accept in (0.1, 0.99):
        gate = sdk.guardrail(client, "agents 4", numbers=lambda _, p=p_accept: {"p_accept": p})
        assert sdk.run(gate, "call-1")[0] == []
    assert sdk.run(sdk.guardrail(Client(nowhere), "s"))[0] == []


def test_no_objection_is_no_approval(sdk, client):
    """The tool needs its person's approval; a gate that speaks does not give it."""
    gate = sdk.guardrail(client, "agents 5", numbers=lambda _: {"p_accept": 0.99})
    said, outputs, result = sdk.run(gate, needs_approval=True)
    assert (said, outputs) == ([], []) and [one.name for one in result.interruptions] == ["notify"]
