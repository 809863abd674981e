"""The middleware for LangChain: silence, speech, a resumed call, and what a `when` that changes its mind does."""

import asyncio
import types
import uuid

import pytest

from prism_jax.agent.adapters.client import Client


def speech_gate(*given, **options):
    from prism_jax.agent.adapters.langchain import SpeechGate

    return SpeechGate(*given, **options)


@pytest.fixture
def build():
    """Makes an agent whose model calls a tool once and then ends; returns it, its configuration and what was called."""
    pytest.importorskip("langchain.agents.middleware", reason="langchain and langgraph are what is served here")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver

    called = []

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools, **_):
            return self

    @tool
    def notify(message: str) -> str:
        """Tells the person."""
        called.append(message)
        return "told"

    @tool
    def write(path: str) -> str:
        """Writes a file."""
        called.append(path)
        return "written"

    def make(*middleware, name="notify", arguments=None):
        call = {"name": name, "args": arguments or {"message": "Build is red"}, "id": f"call-{uuid.uuid4()}"}
        model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")]))
        agent = create_agent(model, [notify, write], middleware=middleware, checkpointer=InMemorySaver())
        return agent, {"configurable": {"thread_id": f"thread-{uuid.uuid4()}"}}, called

    return make


ASKED = {"messages": [("user", "Fix the build.")]}


def test_where_the_gate_is_silent_the_model_reads_why_and_goes_on(build, client, records):
    gate = speech_gate(client, ["notify"], person="ada", numbers=lambda _: {"p_need": 0.9, "p_accept": 0.1})
    agent, config, called = build(gate)
    _, _, withheld, last = agent.invoke(ASKED, config)["messages"]
    assert withheld.type == "tool" and withheld.name == "notify" and withheld.status == "success"
    assert withheld.content.startswith("Not said, because an interruption is not worth it now (silent: 0.1")
    assert (last.text, called) == ("Done.", [])
    (record,) = records(f"ada%2F{config['configurable']['thread_id']}")
    assert record["candidate"] == "Build is red" and record["person"]["name"] == "ada"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_where_it_speaks_the_tool_runs_and_other_tools_are_not_asked_about(build, client, nowhere, asynchronous):
    numbers = {"p_need": 0.9, "p_accept": 0.9}
    for gate, name, arguments, wanted in [
        (speech_gate(client, ["notify"], stream="own", numbers=lambda _: numbers), "notify", None, "Build is red"),
        (speech_gate(client, ["notify"], numbers=lambda _: numbers | {"p_accept": 0.1}), "notify", None, None),
        (speech_gate(Client(nowhere), ["notify"]), "write", {"path": "a.txt"}, "a.txt"),
    ]:
        agent, config, called = build(gate, name=name, arguments=arguments)
        called.clear()
        found = asyncio.run(agent.ainvoke(ASKED, config)) if asynchronous else agent.invoke(ASKED, config)
        assert called == ([] if wanted is None else [wanted]) and found["messages"][-1].text == "Done."


def test_each_person_of_a_thread_has_a_stream_and_what_the_server_refuses_ends_no_run(build, client, records):
    people = iter(["ada", "bob", "x" * 10_000])
    numbers = lambda _: {"p_accept": 0.9}  # noqa: E731
    gate = speech_gate(client, ["notify"], stream="all", person=lambda _: next(people), numbers=numbers)
    for name in ("ada", "bob"):
        agent, config, called = build(gate)
        assert agent.invoke(ASKED, config)["messages"][-1].text == "Done." and called.pop() == "Build is red"
        (record,) = records(f"{name}%2Fall")
        assert record["person"]["name"] == name
    agent, config, called = build(gate)
    withheld = agent.invoke(ASKED, config)["messages"][2].content
    assert called == [] and "(silent: the gate cannot decide: /v1/decide: status 422: body: " in withheld


def test_without_numbers_the_server_reads_what_the_person_said(build, client, server, monkeypatch):
    monkeypatch.setattr("prism_jax.agent.adapters.client.clock", types.SimpleNamespace(time=lambda: 1.0))
    agent, config, called = build(speech_gate(client, ["notify"]))
    agent.invoke(ASKED, config)
    event = {"time": 1.0, "text": "Fix the build.", "candidates": ["Build is red"]}
    wanted = server.ask("/v1/streams/beside/events", event)[1]
    assert called == (["Build is red"] if wanted["speak"] else [])


def test_a_resumed_call_gets_the_answer_of_the_first_time_though_the_numbers_have_changed(build, client, records):
    """The tool waits for its person, so that the call is run again from its start on resume."""
    from langgraph.types import Command, interrupt

    from prism_jax.agent.adapters.langchain import SpeechGate

    numbers = {"p_accept": 0.9}
    waits = []

    class Waits(SpeechGate):
        def wrap_tool_call(self, request, handler):
            return super().wrap_tool_call(request, lambda request: (waits.append(interrupt("?")), handler(request))[1])

    agent, config, called = build(Waits(client, ["notify"], numbers=lambda _: numbers))
    assert agent.invoke(ASKED, config)["__interrupt__"] and called == []
    numbers["p_accept"] = 0.0
    assert agent.invoke(Command(resume="yes"), config)["messages"][-1].text == "Done."
    assert (called, waits) == (["Build is red"], ["yes"])
    assert len(records(config["configurable"]["thread_id"])) == 1


def approval(when, mode):
    """LangChain's own approval by a person, asked for where `when` says so."""
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    asks = {"allowed_decisions": ["approve", "reject"], "when": when}
    return HumanInTheLoopMiddleware({"notify": asks}, interrupt_mode=mode)


def reject(agent, config, mode):
    from langgraph.types import Command

    decision = {"type": "reject"}
    resumed = Command(resume=decision if mode == "per_call" else {"decisions": [decision]})
    return agent.invoke(resumed, config)["messages"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_a_condition_of_an_approval_that_changes_its_mind_runs_what_the_person_rejected(build, mode):
    """LangChain 1.5.2: the reason why the gate is no such condition."""
    answers = iter([True, False])
    agent, config, called = build(approval(lambda _: next(answers), mode))
    assert agent.invoke(ASKED, config)["__interrupt__"]
    reject(agent, config, mode)
    assert called == ["Build is red"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("gate_is_outermost", [True, False])
def test_beside_the_gate_what_the_person_rejected_stays_rejected(build, client, mode, gate_is_outermost):
    answers = iter([0.9, 0.0, 0.9])
    gate = speech_gate(client, ["notify"], numbers=lambda _: {"p_accept": next(answers)})
    order = [gate, approval(lambda _: True, mode)]
    agent, config, called = build(*(order if gate_is_outermost else order[::-1]))
    assert agent.invoke(ASKED, config)["__interrupt__"]
    assert "rejected" in reject(agent, config, mode)[2].content
    assert called == []
