"""Grammars of generated text, as automata over a tokenizer's vocabulary: one line, and the inside of a JSON string.

A grammar is an automaton over characters. Every token of the vocabulary is run through it once, so a token that spans a
boundary, such as `."` at the end of a JSON string, is known to end the text and to hold a full stop before its end.
Special tokens are forbidden in every state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from prism_jax.student.constrained import END, FORBIDDEN, Automaton, make_automaton
from prism_jax.student.prompting.tokenizer import Tokenizer

Move = Callable[[int, str], int]
"""(state, character) to the next state, `END` or `FORBIDDEN`."""

_BLANK, _TEXT = 0, 1  # nothing but spaces so far, which may not stop; and text, which may
_ESCAPE = 2  # in a JSON string: after a backslash; the states above are those of the digits of \uXXXX
_FIRST_DIGIT, _LAST_DIGIT = 3, 6
_AFTER_BACKSLASH = '"\\/bfnrt'
_HEXADECIMAL = "0123456789abcdefABCDEF"


@dataclasses.dataclass(frozen=True)
class Grammar:
    """An automaton over characters."""

    name: str
    states: int  # number of states; a text starts in state 0
    final: tuple[bool, ...]  # whether a text may stop in each state
    move: Move
    special: str  # characters on which `move` does anything but reach the state of text, from blank or from text


def _control(character: str) -> bool:
    return ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 or character in "\u2028\u2029"


def _line_move(state: int, character: str) -> int:
    if character in "\r\n":
        return FORBIDDEN if state == _BLANK else END
    if _control(character):
        return FORBIDDEN
    return _BLANK if state == _BLANK and character.isspace() else _TEXT


def _string_move(state: int, character: str) -> int:
    if state == _ESCAPE:
        return _TEXT if character in _AFTER_BACKSLASH else _FIRST_DIGIT if character == "u" else FORBIDDEN
    if state >= _FIRST_DIGIT:
        # D800 to DFFF are halves of surrogate pairs, which alone are no characters.
        known = character in _HEXADECIMAL and not (state == _FIRST_DIGIT and character in "dD")
        return FORBIDDEN if not known else _TEXT if state == _LAST_DIGIT else state + 1
    if character == '"':
        return FORBIDDEN if state == _BLANK else END
    if character == "\\":
        return _ESCAPE
    if _control(character):
        return FORBIDDEN
    return _BLANK if state == _BLANK and character.isspace() else _TEXT


STATES = 7
"""Number of states of every automaton here, some of them unused: one program then serves all grammars."""
LINE = Grammar("line", 2, (False, True), _line_move, "\r\n")
"""One line that holds more than spaces; a line break ends it."""
JSON_STRING = Grammar("string", 7, (False, True, False, False, False, False, False), _string_move, '"\\')
"""The inside of a JSON string that holds more than spaces, with well-formed escapes; its closing quote ends it."""


def over_tokens(grammar: Grammar, tokenizer: Tokenizer, vocabulary: int) -> Automaton:
    """The grammar as an automaton over token ids.

    A token that ends the text is replaced by the token for what it holds before its end, and forbidden where that is
    more than one token. `vocabulary` is the student's number of ids; those that the tokenizer lacks are forbidden.
    ValueError if the vocabulary has no token for needed characters.
    """
    step = np.full((STATES, vocabulary), FORBIDDEN, np.int8)
    kept = np.full(vocabulary, -1, np.int32)
    for token, text in tokenizer.texts().items():
        if not text:
            continue
        if _plain(grammar, text):
            step[:_ESCAPE, token] = _TEXT
            starts = range(_ESCAPE, grammar.states)
        else:
            starts = range(grammar.states)
        for state in starts:
            after, stop = _run(grammar, state, text)
            if after == END and state >= _ESCAPE:
                continue  # where such a token ends would differ from where it ends in the state of text
            if after == END and (before := text[:stop]).strip():
                ids = tokenizer.encode(before)
                if len(ids) != 1:
                    continue
                kept[token] = ids[0]
            step[state, token] = after
    final = [*grammar.final, *[False] * (STATES - grammar.states)]
    return make_automaton(step, kept, final)


def _plain(grammar: Grammar, text: str) -> bool:
    """Whether a token leads to the state of text from blank and from text: most tokens do, which saves running them."""
    return not text.isspace() and not any(c in grammar.special or _control(c) for c in text)


def _run(grammar: Grammar, state: int, text: str) -> tuple[int, int]:
    """The state after a token's text, and the index of the character at which the run stopped."""
    for index, character in enumerate(text):
        state = grammar.move(state, character)
        if state in (FORBIDDEN, END):
            return state, index
    return state, len(text)
