"""Prompts of a made-up checkout are read without running it; those of a real one equal what its script sends."""

from __future__ import annotations

import json
import pathlib

import pytest
from real_checkout import CHECKOUT, needs_checkout, run_script

from prism_jax.streams.published.prompts import (
    AGENT_SCRIPT,
    JUDGE_SCRIPT,
    PromptError,
    read_agent_prompt,
    read_judge_prompt,
)

AGENT = """
import nothing_that_exists
SYSTEM = '''Be of "help".'''
STEP = json.dumps({"Do": "It.", "Seen": "[placeholder]"})
"""
JUDGE = """
SYSTEM = "Judge."
def format_reward_instruction(obs, pred_task):
    form = {"Seen": obs, "Task": pred_task, "Do": "Decide."}
    return json.dumps(form)
"""


def checkout(folder: pathlib.Path, agent: str = AGENT, judge: str = JUDGE) -> pathlib.Path:
    for script, text in ((AGENT_SCRIPT, agent), (JUDGE_SCRIPT, judge)):
        path = folder / script
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_prompts_are_read_as_literals(tmp_path):
    source = checkout(tmp_path)
    agent, judge = read_agent_prompt(source), read_judge_prompt(source)
    assert (agent.system, agent.step) == ('Be of "help".', '{"Do": "It.", "Seen": "[placeholder]"}')
    assert json.loads(judge.user([{"time": "1", "event": "é"}], None)) == {
        "Seen": [{"time": "1", "event": "é"}],
        "Task": None,
        "Do": "Decide.",
    }
    assert agent.name.startswith("official ") and agent.name != judge.name


def test_another_text_has_another_name(tmp_path):
    first = read_agent_prompt(checkout(tmp_path / "first"))
    second = read_agent_prompt(checkout(tmp_path / "second", AGENT.replace("It.", "That.")))
    assert first.name != second.name


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("STEP = '[placeholder]'", "SYSTEM: found nothing"),
        ("SYSTEM = open('x').read()\nSTEP = '[placeholder]'", "SYSTEM: found an expression"),
        ("SYSTEM = 'a'\nSTEP = 'b'", "found no \\[placeholder\\]"),
        ("SYSTEM = (", "found no Python that can be read"),
    ],
)
def test_what_is_no_literal_is_refused(tmp_path, agent, expected):
    with pytest.raises(PromptError, match=expected):
        read_agent_prompt(checkout(tmp_path, agent))


@pytest.mark.parametrize(
    ("judge", "expected"),
    [("SYSTEM = 'a'", "found none with a dictionary"), (JUDGE.replace("obs,", "seen,"), "found the arguments")],
)
def test_a_judge_without_its_form_is_refused(tmp_path, judge, expected):
    with pytest.raises(PromptError, match=expected):
        read_judge_prompt(checkout(tmp_path, judge=judge.replace("(seen,", "(obs,")))


def test_a_missing_checkout_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a checkout"):
        read_judge_prompt(tmp_path)


@needs_checkout
def test_the_judges_message_is_the_scripts():
    module = run_script(JUDGE_SCRIPT)
    prompt = read_judge_prompt(CHECKOUT)
    for task in ("Fix “it”.", None):
        system, user = module["format_reward_instruction"]([{"time": "1.0", "event": "Öffnet x"}], task)
        assert system["content"] == prompt.system
        assert user["content"] == prompt.user([{"time": "1.0", "event": "Öffnet x"}], task)
