"""Constrained decoding against a naive loop that reads each row's whole text again for every token."""

import jax
import numpy as np
import pytest
from full_pass import next_logits
from student_sizes import small
from written import write

from prism_jax.student.constrained import END, FORBIDDEN, Span, make_automaton, write_program
from prism_jax.student.qwen3 import Qwen3

VOCABULARY = 24
SPANS = [Span((3, 4), 5), Span((5, 6, 7), 3), Span((8,), 6)]


@pytest.fixture(scope="module")
def model():
    return Qwen3(small(vocab_size=VOCABULARY, initializer_range=0.5))


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(1))


@pytest.fixture(scope="module")
def automaton():
    """Three states; tokens 20 and 21 end the text of state 1, and 21 leaves token 9 behind."""
    step = np.random.default_rng(0).integers(-1, 3, (3, VOCABULARY)).astype(np.int8)
    step[:, :3] = FORBIDDEN
    step[:, 20:22] = FORBIDDEN
    step[1, 20:22] = END
    kept = np.full(VOCABULARY, -1)
    kept[21] = 9
    return make_automaton(step, kept, [False, True, False])


def naive(model, params, prompt, spans, automaton):
    """The free tokens of every span by greedy decoding, one full forward pass per token."""
    ids, written = list(prompt), []
    for span in spans:
        ids += span.forced
        state, free = 0, []
        while len(free) < span.limit:
            logits = next_logits(model, params, ids, 32)
            after = automaton.after[state]
            logits[after > span.limit - len(free) - 1] = -np.inf
            token = int(logits.argmax())
            state = automaton.step[state, token]
            if state == END:
                token = int(automaton.kept[token])
            if token >= 0:
                ids.append(token)
                free.append(token)
            if state == END:
                break
        written.append(free)
    return written


PROMPTS = [[1, 2], [9, 10, 11, 12, 13], [14], [15, 16, 17, 1, 2, 3], [2, 2, 2], [23, 1]]


@pytest.mark.slow
def test_every_row_is_what_a_naive_loop_writes(model, params, automaton):
    written = write(model, params, PROMPTS, SPANS, automaton)
    assert written == [naive(model, params, prompt, SPANS, automaton) for prompt in PROMPTS]
    lengths = {tuple(map(len, row)) for row in written}
    assert len(lengths) > 1, "the rows should not all keep pace"


def prompts_of(seed):
    """Six prompts of one to eight tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCABULARY, rng.integers(1, 9)).tolist() for _ in range(6)]


def test_text_is_a_walk_of_the_automaton_that_ends_where_it_may(model, params, automaton):
    seen_end = seen_limit = False
    for seed in range(20):
        for row in write(model, params, prompts_of(seed), SPANS, automaton):
            for span, free in zip(SPANS, row, strict=True):
                state = 0
                for token in free[:-1]:
                    state = automaton.step[state, token]
                    assert state >= 0
                last = automaton.step[state, free[-1]]
                seen_end |= len(free) < span.limit
                seen_limit |= len(free) == span.limit
                # The text stopped at its limit in state 1, or at an end, whose own token is not kept or is token 9.
                assert last == 1 or (len(free) < span.limit and (last == 1 or free[-1] == 9)) or free[-1] == 9
    assert seen_end and seen_limit


@pytest.mark.slow
def test_a_row_does_not_depend_on_the_others(model, params, automaton):
    together = write(model, params, PROMPTS, SPANS, automaton)
    for prompt, row in zip(PROMPTS, together, strict=True):
        assert write(model, params, [prompt], SPANS, automaton) == [row]


def test_one_program_serves_all_texts_of_a_bucket(model, params, automaton):
    write(model, params, PROMPTS, SPANS, automaton)
    before = write_program._cache_size()
    write(model, params, PROMPTS[::-1], [Span((3, 4), 4), Span((5, 6), 4), Span((2, 8), 6)], automaton)
    assert write_program._cache_size() == before


def test_distances_are_the_fewest_tokens_to_an_end():
    #               a  b  end
    step = np.array([[1, FORBIDDEN, FORBIDDEN], [2, 1, FORBIDDEN], [FORBIDDEN, 2, END]], np.int8)
    kept = np.full(3, -1)
    assert make_automaton(step, kept, [False, False, True]).distance.tolist() == [2, 1, 0]
    # The end itself is one more token than the state from which it is reached.
    assert make_automaton(step, kept, [False, False, False]).distance.tolist() == [3, 2, 1]
    with pytest.raises(ValueError, match="automaton: found no text that may stop"):
        make_automaton(step[:, :2], kept[:2], [False, False, False])


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([Span((1,), 0)], r"spans\[0\].limit: found 0, expected at least"),
        ([Span((1,), 4), Span((), 4)], r"spans\[1\].forced: found no token ids"),
        ([Span((1,), 4), Span((99,), 4)], r"spans\[1\].forced: found token id 99"),
    ],
)
def test_bad_spans(model, params, automaton, spans, message):
    with pytest.raises(ValueError, match=message):
        write(model, params, PROMPTS[:1], spans, automaton)
