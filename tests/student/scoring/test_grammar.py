"""Grammars over real vocabularies: whatever an automaton lets through is well formed."""

import json

import numpy as np
import pytest

from prism_jax.student.constrained import END, FORBIDDEN
from prism_jax.student.prompting.tokenizer import SPECIAL_TOKENS
from prism_jax.student.scoring.grammar import JSON_STRING, LINE, over_tokens

GRAMMARS = {"line": LINE, "string": JSON_STRING}


@pytest.fixture(scope="module")
def automata(template):
    tokenizer = template.tokenizer
    return {name: over_tokens(grammar, tokenizer, tokenizer.size) for name, grammar in GRAMMARS.items()}


def walk(automaton, after, limit, rng, towards):
    """A random text: at each token any that is allowed, mostly one of `towards`, as the decoder allows them."""
    state, ids = 0, []
    while len(ids) < limit:
        left = limit - len(ids) - 1
        chosen = towards[after[state, towards] <= left]
        if not len(chosen) or rng.random() < 0.2:
            chosen = np.flatnonzero(after[state] <= left)
        token = int(rng.choice(chosen))
        state = int(automaton.step[state, token])
        if state == END:
            if automaton.kept[token] >= 0:
                ids.append(int(automaton.kept[token]))
            break
        ids.append(token)
    return ids


def tokens_with(tokenizer, characters):
    return np.array([token for token, text in tokenizer.texts().items() if any(c in text for c in characters)])


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 30])
def test_strings_are_valid_json_and_lines_are_lines(automata, template, limit):
    tokenizer, rng = template.tokenizer, np.random.default_rng(limit)
    odd = tokens_with(tokenizer, '"\\\n\r\tu0aD')
    for _ in range(300):
        text = tokenizer.decode(walk(automata["string"], automata["string"].after, limit, rng, odd))
        value = json.loads(f'"{text}"')
        assert value.strip()
        value.encode("utf-8")  # no half of a surrogate pair
        line = tokenizer.decode(walk(automata["line"], automata["line"].after, limit, rng, odd))
        assert line.strip() and len(line.splitlines()) == 1


def test_special_tokens_are_forbidden_in_every_state(automata, template):
    for automaton in automata.values():
        for name in SPECIAL_TOKENS:
            assert (automaton.step[:, template.tokenizer.special(name)] == FORBIDDEN).all()


def test_ids_beyond_the_tokenizer_are_forbidden(template):
    automaton = over_tokens(LINE, template.tokenizer, template.tokenizer.size + 7)
    assert (automaton.step[:, -7:] == FORBIDDEN).all()


@pytest.mark.slow
def test_qwen3(qwen3_tokenizer):
    """A token that spans the end of a string keeps what it holds before the quote; the real vocabulary has many."""
    automaton = over_tokens(JSON_STRING, qwen3_tokenizer, 151_936)
    quote, full_stop, both = (qwen3_tokenizer.only(text) for text in ('"', ".", '."'))
    assert automaton.step[1, quote] == END and automaton.kept[quote] == -1
    assert automaton.step[1, both] == END and automaton.kept[both] == full_stop
    assert automaton.step[0, quote] == FORBIDDEN, "a value is never empty"
    rng, after = np.random.default_rng(0), automaton.after
    odd = tokens_with(qwen3_tokenizer, '"\\')
    for _ in range(40):
        text = qwen3_tokenizer.decode(walk(automaton, after, 12, rng, odd))
        json.loads(f'"{text}"').encode("utf-8")
