"""Claude Code: hooks for its questions and notifications, as a command or as callbacks of claude-agent-sdk.

As a command it reads a hook's JSON on standard input and prints the answer's; in `.claude/settings.json`:

    {"hooks": {"PreToolUse": [{"matcher": "AskUserQuestion|PushNotification", "hooks": [{"type": "command",
      "command": "python -m prism_jax.agent.adapters.claude_code --url=http://localhost:8000 --p_accept=0.5"}]}]}}

`--key=NAME` names the environment variable that holds a bearer token.
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

from prism_jax.agent.adapters.client import Answer, Client, define_server_flags, message_of, token_of

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
        if _told(client.answer_or_withhold(hook["session_id"], message, text=kind, **more)).speak:
            subprocess.run([*notify, message], check=False, stdout=2)  # standard output is the answer's
    if event != "PreToolUse" or tool not in tools:
        return {}
    try:
        words = _words(hook["tool_input"])
        answer = _told(client.ask(hook["session_id"], words, text=f"use of {tool}", key=hook["tool_use_id"], **more))
    except Exception as error:  # one of a hook would let the speech go out
        return _undecided(str(error))
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


def _words(given: Mapping[str, Any]) -> str:
    """What a tool says: of AskUserQuestion its questions, without their options."""
    asked = given.get("questions")
    texts = [one.get("question") if isinstance(one, dict) else None for one in asked] if isinstance(asked, list) else []
    words = [text for text in texts if isinstance(text, str)]
    return "\n".join(words) if words and len(words) == len(texts) else message_of(given)


def _told(answer: Answer) -> Answer:
    """An answer; of one without a decision, whoever set up the hook learns from standard error."""
    if answer.p_accept is None:
        print(f"prism_jax: {answer.reason}", file=sys.stderr)
    return answer


def _undecided(why: str) -> dict[str, Any]:
    """A denial where the gate cannot decide."""
    return _denied(_told(Answer(False, f"the gate cannot decide: {why}")).reason)


def _denied(reason: str) -> dict[str, Any]:
    own = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": own}


def main(arguments: list[str] | None = None) -> None:
    """Answers the hook on standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    define_server_flags(parser)
    parser.add_argument("--otherwise", default="silent", help="what stands in for a server without answer")
    parser.add_argument("--tools", default=",".join(SPEECH), help="names of tools that only speak, with commas")
    parser.add_argument("--person", help="whose session it is")
    parser.add_argument("--p_need", type=float, help="probability of need, with --p_accept; default: 1")
    parser.add_argument("--p_accept", type=float, help="probability of acceptance; without, the server reads the words")
    parser.add_argument("notify", nargs="*", help="command that is run with a notification, behind --")
    given = parser.parse_args(arguments)
    numbers = {"p_need": 1.0 if given.p_need is None else given.p_need, "p_accept": given.p_accept}
    tools = [name.strip() for name in given.tools.split(",")]
    try:
        if given.p_need is not None and given.p_accept is None:
            raise ValueError("--p_need: found it without --p_accept, expected both: else the server reads the words")
        client = Client(given.url, token_of(given), otherwise=given.otherwise)
        answer = answer_of(json.load(sys.stdin), client, tools, given.notify, person=given.person, **numbers)
    except Exception as error:  # as above: flags or input that cannot be used are no consent
        answer = _undecided(f"{type(error).__name__}: {error}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
