"""Unconstrained text, compared with transformers and with a loop without a cache."""

import dataclasses

import jax
import numpy as np
import pytest
from full_pass import all_logits
from huggingface import reference
from student_sizes import grouped
from written import after, any_token, generate

from prism_jax.student.constrained import DeviceAutomaton, Span, write_spans
from prism_jax.student.kv_cache import unstack_layers
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.start import branch_off

TINY = grouped(num_layers=2, tied=False)
PROMPTS = [[5, 6, 7, 8, 9, 10, 11, 12, 13], [3], [17, 60, 0, 4], [1, 2, 3, 4, 5, 6]]
LIMIT = 20


@pytest.fixture(scope="module")
def tiny(draw_params):
    model = Qwen3(TINY)
    return model, draw_params(model, seed=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{}, {"qk_norm": False, "num_kv_heads": 1}, {"num_layers": 1}], ids=["qwen3", "llama", "one layer"]
)
def test_greedy_generation_equals_transformers(changes, draw_params):
    """Prompts of different lengths in one batch; transformers pads them on the left."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of parity")
    config = dataclasses.replace(TINY, **changes)
    model = Qwen3(config)
    params = draw_params(model, seed=8)
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in PROMPTS])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in PROMPTS])
    written = reference(config, params).generate(
        ids, attention_mask=mask, max_new_tokens=LIMIT, do_sample=False, pad_token_id=0
    )
    want = written[:, width:].tolist()
    assert min(len(set(row)) for row in want) > 3  # otherwise a broken model could agree
    assert generate(model, params, PROMPTS, LIMIT) == want


@pytest.mark.slow
def test_rows_that_continue_a_trunk_are_written_as_after_whole_prompts(tiny):
    model, params = tiny[0], unstack_layers(tiny[1])
    rows, counts = np.array([[8, 9, 10], [3, 0, 0]], np.int32), np.array([3, 1], np.int32)
    trunk = after(model, params, [[5, 6, 7]] * 2, 0).trunk
    start = branch_off(model, params, trunk, rows, counts, room=32)
    found = write_spans(model, params, start, [Span((), LIMIT)], DeviceAutomaton(any_token(61)))
    expected = generate(model, tiny[1], [[5, 6, 7, 8, 9, 10], [5, 6, 7, 3]], LIMIT)
    assert [row[0] for row in found] == expected


def test_each_token_is_the_likeliest_after_what_precedes_it(tiny):
    """By the logits of a forward pass without a cache."""
    model, params = tiny
    written = generate(model, params, PROMPTS, LIMIT)

    likeliest = jax.jit(lambda tokens: all_logits(model, params, tokens)[0].argmax(axis=1))
    for prompt, new in zip(PROMPTS, written, strict=True):
        whole = np.zeros((1, 32), np.int32)
        whole[0, : len(prompt) + LIMIT] = prompt + new
        assert new == np.asarray(likeliest(whole))[len(prompt) - 1 :][:LIMIT].tolist()
