"""Hooks of Claude Code, in the form of its SDK 0.2.189: a denial or nothing, and never a permission."""

import asyncio
import io
import json

import pytest

from prism_jax.agent.adapters import claude_code
from prism_jax.agent.adapters.client import Client

SESSION = {"session_id": "session-1", "transcript_path": "/t.jsonl", "cwd": "/w", "permission_mode": "default"}


def use_of(tool, call, **arguments):
    """The input of a PreToolUse hook."""
    return SESSION | {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": arguments, "tool_use_id": call}


QUESTION = {"questions": [{"question": "Which branch?", "header": "Branch", "options": [], "multiSelect": False}]}
ASKED = use_of("AskUserQuestion", "toolu_1", **QUESTION)


def test_a_question_is_denied_where_the_gate_is_silent_and_has_no_answer_where_it_speaks(client, records):
    silent = claude_code.answer_of(ASKED, client, p_accept=0.1)
    assert silent["hookSpecificOutput"].keys() == {"hookEventName", "permissionDecision", "permissionDecisionReason"}
    assert silent["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "not worth it now (silent: 0.1" in silent["hookSpecificOutput"]["permissionDecisionReason"]
    assert claude_code.answer_of(use_of("PushNotification", "toolu_2", message="Done"), client, p_accept=0.9) == {}
    # The same call is resumed, and the numbers say otherwise.
    assert claude_code.answer_of(ASKED, client, p_accept=0.9) == silent
    assert [one["spoke"] for one in records("session-1")] == [False, True]
    assert [one["candidate"] for one in records("session-1")] == ["Which branch?", "Done"]


@pytest.mark.parametrize("tool", ["Bash", "Write", "Edit", "mcp__mail__send", "askuserquestion", "ExitPlanMode"])
def test_no_other_tool_is_asked_about_or_answered(tool, nowhere):
    assert claude_code.answer_of(use_of(tool, "t", command="rm -rf /"), Client(nowhere, otherwise="speak")) == {}


def test_nothing_ever_allows_a_tool(client, nowhere):
    away = Client(nowhere, otherwise="speak")
    for event in ("PreToolUse", "PermissionRequest", "PostToolUse", "Stop", "UserPromptSubmit"):
        for tool in ("AskUserQuestion", "PushNotification", "Bash"):
            for number, (where, p) in enumerate([(client, 0.0), (client, 1.0), (away, 0.5)]):
                hook = use_of(tool, f"{event}-{tool}-{number}", message="x") | {"hook_event_name": event}
                answer = claude_code.answer_of(hook, where, tools=("AskUserQuestion", "Bash"), p_accept=p)
                denies = event == "PreToolUse" and tool != "PushNotification" and p == 0.0
                assert (answer != {}) is denies
                assert not {"allow", "approve", "ask"} & set(json.dumps(answer).split('"'))


def test_a_refusal_and_an_outage_are_silence(server, nowhere):
    elsewhere = Client(server.url + "/x")
    for client, why in [(Client(nowhere), "no answer of the server"), (elsewhere, "the gate cannot decide")]:
        found = claude_code.answer_of(ASKED, client, p_accept=0.99)["hookSpecificOutput"]
        assert found["permissionDecision"] == "deny" and why in found["permissionDecisionReason"]


def test_a_callback_of_the_sdk_answers_the_same(client):
    hook = claude_code.callback(client, p_accept=0.1)
    answer = asyncio.run(hook(use_of("AskUserQuestion", "sdk", **QUESTION), "sdk", {"signal": None}))
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert asyncio.run(hook(use_of("Bash", "sdk2", command="ls"), "sdk2", {"signal": None})) == {}


def run(monkeypatch, capsys, hook, *arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(hook)))
    claude_code.main(list(arguments))
    return json.loads(capsys.readouterr().out)


def test_the_command_reads_a_hook_and_prints_the_answer(server, monkeypatch, capsys, tmp_path):
    where, hook = f"--url={server.url}", use_of("Ask", "command", message="Hello")
    assert run(monkeypatch, capsys, hook, where, "--p_accept=0.1") == {}
    denied = run(monkeypatch, capsys, hook, where, "--p_accept=0.1", "--tools=Ask,Tell", "--person=ada")
    assert denied["hookSpecificOutput"]["permissionDecision"] == "deny"
    told = SESSION | {"hook_event_name": "Notification", "message": "Waiting", "notification_type": "idle_prompt"}
    for p_accept, spoken in [("0.1", False), ("0.9", True)]:
        notify = ["--", "touch", "-r", "/", str(tmp_path / p_accept)]
        monkeypatch.chdir(tmp_path)
        more = told | {"session_id": f"session-{p_accept}"}
        assert run(monkeypatch, capsys, more, where, "--p_need=0.9", f"--p_accept={p_accept}", *notify) == {}
        assert (tmp_path / p_accept).exists() is spoken
        assert (tmp_path / "Waiting").exists() is spoken  # the message is the last argument


@pytest.mark.parametrize(
    ("flags", "hook"),
    [
        *(([flag], ASKED) for flag in ("--url=localhost:9", "--otherwise=quiet", "--token=☕")),
        *((["--otherwise=speak", flag], ASKED) for flag in ("--p_need=0.3", "--key=NO_SUCH")),
        *(([], hook) for hook in (ASKED | {"tool_input": None}, "no object")),
        (["--tools=AskUserQuestion, PushNotification"], use_of("PushNotification", "t", m="x")),
    ],
)
def test_whatever_fails_in_the_command_withholds(flags, hook, monkeypatch, capsys):
    """A hook that ends with an error lets the question be asked."""
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(hook)))
    claude_code.main(["--url=http://localhost:9", *flags])
    said = capsys.readouterr()
    assert json.loads(said.out)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert said.err.startswith("prism_jax: ") and said.err.count("\n") == 1
