"""Claude Code: hooks for its questions and notifications, as a command or as callbacks of claude-agent-sdk.

As a command it reads a hook's JSON on standard input and prints the answer's; in `.claude/settings.json`:

    {"hooks": {"PreToolUse": [{"matcher": "AskUserQuestion|PushNotification", "hooks": [{"type": "command",
      "command": "python -m prism_jax.adapters.claude_code --url=http://localhost:8000 --p_accept=0.5"}]}]}}

A question or notification where the gate is silent is denied, and the model reads why. Anything else is answered by {},
which leaves it to the permissions of the session: no answer ever allows a tool. The event Notification can withhold
nothing; what it starts is a command of yours, `... --url=URL -- notify-send`, which runs where the gate speaks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from prism_jax.adapters.client import Client
from prism_jax.adapters.wire import message_of

SPEECH = ("AskUserQuestion", "PushNotification")
"""Tools that only speak to the person."""


def answer_of(
    hook: Mapping[str, Any], client: Client, tools: Collection[str] = SPEECH, notify: Collection[str] = (), **more: Any
) -> dict[str, Any]:
    """The answer to a hook: a denial, or {}; `notify` is a command for a notification, `more` goes to `Client.ask`.

    What the server refuses is a denial, too, since a hook that fails would let the speech go out.
    """
    event, tool = hook["hook_event_name"], hook.get("tool_name")
    if event == "Notification" and notify:
        message = hook["message"]
        kind = hook.get("notification_type", "")
        if client.answer_or_withhold(hook["session_id"], message, text=kind, **more).speak:
            subprocess.run([*notify, message], check=False, stdout=2)  # standard output is the answer's
    if event != "PreToolUse" or tool not in tools:
        return {}
    try:
        words = message_of(hook["tool_input"])
        answer = client.ask(hook["session_id"], words, text=f"use of {tool}", key=hook["tool_use_id"], **more)
    except Exception as error:  # one of a hook would let the speech go out
        return _denied(f"the gate cannot decide: {error}")
    reason = f"an interruption is not worth it now ({answer.reason}); continue without it"
    return {} if answer.speak else _denied(reason)


def callback(client: Client, tools: Collection[str] = SPEECH, **more: Any) -> Callable[..., Awaitable[dict[str, Any]]]:
    """A callback for `ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(hooks=[callback(client)])]})`.

    ClientError where the server does not decide on what it would be asked.
    """
    client.check(stated=more.get("p_accept") is not None)

    async def hook(given: Mapping[str, Any], tool_use_id: str | None, context: Any) -> dict[str, Any]:
        return await asyncio.to_thread(answer_of, given, client, tools, **more)

    return hook


def _denied(reason: str) -> dict[str, Any]:
    own = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": own}


def main(arguments: list[str] | None = None) -> None:
    """Answers the hook on standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="address of the server with state")
    parser.add_argument("--token", help="bearer token")
    parser.add_argument("--otherwise", default="silent", help="what stands in for a server without answer")
    parser.add_argument("--tools", default=",".join(SPEECH), help="names of tools that only speak, with commas")
    parser.add_argument("--person", help="whose session it is")
    parser.add_argument("--p_need", type=float, default=1.0, help="probability of need, with --p_accept")
    parser.add_argument("--p_accept", type=float, help="probability of acceptance; without, the server reads the words")
    parser.add_argument("notify", nargs="*", help="command that is run with a notification, behind --")
    given = parser.parse_args(arguments)
    numbers = {"p_need": given.p_need, "p_accept": given.p_accept, "person": given.person}
    tools = [name.strip() for name in given.tools.split(",")]
    try:
        client = Client(given.url, given.token, otherwise=given.otherwise)
        answer = answer_of(json.load(sys.stdin), client, tools, given.notify, **numbers)
    except Exception as error:  # as above: flags or input that cannot be used are no consent
        answer = _denied(f"the gate cannot decide: {type(error).__name__}: {error}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
