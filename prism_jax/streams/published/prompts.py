"""ProactiveBench's own prompts, read as data from a user's checkout of its repository.

The benchmark's sentences are not part of this project. Its scripts are parsed and never executed: only literals are
read, and `json.dumps` of literals. What was read is named by a digest, so that outputs say which prompt they are of.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from prism_jax.runtime.files import read_bounded
from prism_jax.streams import Event

AGENT_SCRIPT, JUDGE_SCRIPT = "eval/script.py", "eval/reward_model_template.py"
PLACE = "[placeholder]"
"""Where the agent's script puts the JSON of an event into its user message."""


class PromptError(ValueError):
    """A script that does not hold what a prompt is read from, in one line: `FILE: found ..., expected ...`."""


class AgentPrompt(NamedTuple):
    """How a model is prompted as ProactiveBench's agent."""

    name: str  # `official`, with the digest of the texts, or `ours`
    system: str  # the system message
    step: str  # the user message about the newest event, with `PLACE` in place of the event's JSON


class JudgePrompt(NamedTuple):
    """How a model is prompted as ProactiveBench's judge."""

    name: str  # `official`, with the digest of the texts
    system: str  # the system message
    form: Mapping[str, str | None]  # the keys of the user message and their texts; None for the first two arguments
    arguments: tuple[str, str]  # the keys of the observations and of the proposed task

    def user(self, observations: list[dict[str, str]], task: str | None) -> str:
        """The user message: JSON with `time` and `event` of each observation, and the proposed task or null."""
        filled = {**self.form, self.arguments[0]: observations, self.arguments[1]: task}
        return json.dumps(filled, ensure_ascii=False, indent=4)


def observations(events: Iterable[Event]) -> list[dict[str, str]]:
    """Events as the scripts show them: each time as its source wrote it, or else its seconds as a decimal number."""
    return [
        {"time": event.time_text or np.format_float_positional(event.time, trim="0"), "event": event.text}
        for event in events
    ]


def read_agent_prompt(source: epath.PathLike) -> AgentPrompt:
    """The agent's prompt of a checkout.

    Raises:
      FileNotFoundError: if the folder has no such script.
      PromptError: naming the file, where the script does not hold the prompt as literals.
    """
    path, tree = _parsed(source, AGENT_SCRIPT)
    system, step = (_text(_assigned(tree.body, name, path), f"{path}: {name}") for name in ("SYSTEM", "STEP"))
    if PLACE not in step:
        raise PromptError(f"{path}: STEP: found no {PLACE}, expected the place of the event")
    return AgentPrompt(_named(system, step), system, step)


def read_judge_prompt(source: epath.PathLike) -> JudgePrompt:
    """The judge's prompt of a checkout; errors are those of `read_agent_prompt`."""
    path, tree = _parsed(source, JUDGE_SCRIPT)
    system = _text(_assigned(tree.body, "SYSTEM", path), f"{path}: SYSTEM")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    place = f"{path}: format_reward_instruction"
    function = next((node for node in functions if node.name == "format_reward_instruction"), None)
    form = next((node for node in ast.walk(function) if isinstance(node, ast.Dict)), None) if function else None
    if function is None or form is None:
        raise PromptError(f"{place}: found none with a dictionary, expected the form of the user message")
    names = [argument.arg for argument in function.args.args]
    texts: dict[str, str | None] = {}
    keys: dict[str, str] = {}  # the key of each argument
    for key, value in zip(form.keys, form.values, strict=True):
        heading = _text(key, place)
        if isinstance(value, ast.Name) and value.id in names:
            keys[value.id] = heading
        texts[heading] = None if isinstance(value, ast.Name) else _text(value, f"{place}: {heading}")
    if len(names) != 2 or keys.keys() != set(names):
        raise PromptError(f"{place}: found the arguments {', '.join(keys)}, expected observations and a task")
    return JudgePrompt(_named(system, json.dumps(texts)), system, texts, (keys[names[0]], keys[names[1]]))


def _parsed(source: epath.PathLike, script: str) -> tuple[epath.Path, ast.Module]:
    path = epath.Path(source) / script
    if not path.exists():
        raise FileNotFoundError(f"{path}: not found, expected a checkout of ProactiveBench's repository")
    try:
        return path, ast.parse(read_bounded(path, PromptError))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise PromptError(
            f"{path}: found no Python that can be read ({error}), expected the published script"
        ) from None


def _assigned(body: list[ast.stmt], name: str, path: epath.Path) -> ast.expr:
    """The value that a module gives to a name."""
    for node in body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return node.value
    raise PromptError(f"{path}: {name}: found nothing, expected a literal of this name")


def _text(node: ast.expr | None, place: str) -> str:
    """A literal text, or the JSON text of `json.dumps` of a literal."""
    dumped = isinstance(node, ast.Call) and ast.unparse(node.func) == "json.dumps" and len(node.args) == 1
    literal = node.args[0] if dumped and isinstance(node, ast.Call) else node
    try:
        value: Any = None if literal is None else ast.literal_eval(literal)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        raise PromptError(f"{place}: found an expression, expected a literal text") from None
    text = json.dumps(value) if dumped else value
    if not isinstance(text, str):
        raise PromptError(f"{place}: found {type(text).__name__}, expected a literal text")
    return text


def _named(*texts: str) -> str:
    return f"official {hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]}"
