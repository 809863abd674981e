"""Thin clients of the server with state (docs/service.md), one file per host in which an agent runs.

In a hook that approves actions, silence lets the action run. An adapter therefore stands only where speech goes out: a
notification, a question, a suggestion, a message. It withholds speech or has no objection; it approves nothing.

Belongs here: the form in which a host asks and takes an answer. A host's file stays under 60 lines of code.
Does not belong here: decisions, their memory, anything that loads JAX on import.

Where to change what:
- the client, its HTTP, and what stands in for a server that gives no answer: `client.py`
- LangChain: `langchain.py`; the OpenAI Agents SDK: `openai_agents.py`; Claude Code: `claude_code.py`
- schedulers: `heartbeat.py`, and made-up days of one: `wake_ups.py`; OpenClaw: `openclaw/`
- scikit-learn: `scikit_learn.py`, which needs no server
"""
