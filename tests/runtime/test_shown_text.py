"""Characters that a terminal obeys, or that turn text around, never leave the program unescaped."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.report.table import Column, Row, Section, Table, wide_console
from prism_jax.runtime.shown_text import visible

BAD = {
    "\x1b[31mred": "\\x1b[31mred",
    "a\x07b": "a\\x07b",
    "user\u202egpj.exe": "user\\u202egpj.exe",
    "\u2066x\u2069": "\\u2066x\\u2069",
    "a\rb": "a\\rb",
    "a\u2028b": "a\\u2028b",
    "\x9b2J": "\\x9b2J",
    "half \ud83d": "half \\ud83d",
}


@pytest.mark.parametrize("text", BAD)
def test_what_acts_unseen_is_shown_by_its_escape(text):
    assert visible(text) == BAD[text]


@given(st.text())
def test_nothing_unseen_is_left_and_nothing_else_changes(text):
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n"]
    assert not [c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "LRI", "RLI", "FSI")]
    assert visible(shown) == shown


@pytest.mark.parametrize("text", ["naïve – “quoted”\n\tx", "运行测试 😀", "שלום", "e\u0301", "a\u200db"])
def test_letters_of_every_script_stay(text):
    assert visible(text) == text


@pytest.mark.parametrize("text", BAD)
def test_a_table_shows_the_escape_on_the_terminal_and_in_html(text):
    table = Table(text, text, (Column(text),), (Section(text, (Row(text, (text,)),)),), note=text)
    console = wide_console()
    with console.capture() as capture:
        console.print(table.to_terminal())
    for shown in (capture.get(), table.to_html()):
        assert BAD[text].split("[")[0] in shown
        assert not set(text) & set("\x1b\x07\r\x9b\u202e\u2066\u2069\u2028\ud83d") & set(shown)
