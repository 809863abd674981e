"""Generation, compared with transformers and with a loop without a cache."""

import dataclasses
import operator
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from huggingface import reference

from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.attention import no_branches
from prism_jax.student.kv_cache import Segment, unstack_layers
from prism_jax.student.sampler import branch_off, decode, generate, prefill
from prism_jax.student.sampling import make_sampling, restrict

TINY = StudentConfig(
    vocab_size=61, hidden_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=40, tied=False
)
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
    got = generate(model, unstack_layers(params), PROMPTS, LIMIT, make_sampling(len(PROMPTS)))
    assert [row.ids for row in got] == want
    assert not any(row.stopped for row in got)


@pytest.mark.slow
def test_rows_that_continue_a_trunk_are_written_as_after_whole_prompts(tiny):
    model, params = tiny[0], unstack_layers(tiny[1])
    trunk, rows = np.array([[5, 6, 7]] * 2, np.int32), np.array([[8, 9, 10], [3, 0, 0]], np.int32)
    lengths, counts = np.array([3, 3], np.int32), np.array([3, 1], np.int32)
    sampling = make_sampling(2, [0.0, 1.2], [0, 20], [1.0, 0.95], seed=8)
    _, cache = prefill(model, params, trunk, lengths, 0)
    start = branch_off(model, params, Segment.first(cache, lengths), rows, counts, room=24)
    expected = generate(model, params, [[5, 6, 7, 8, 9, 10], [5, 6, 7, 3]], LIMIT, sampling)
    assert decode(model, params, start, LIMIT, sampling, []) == expected


def test_each_token_is_drawn_from_what_precedes_it(tiny):
    """Every sampled token is the one drawn from the logits of a forward pass without a cache."""
    model, params = tiny
    sampling = make_sampling(len(PROMPTS), [0.7, 1.0, 2.0, 0.0], [0, 5, 0, 0], [1.0, 0.9, 0.8, 1.0], seed=11)
    written = generate(model, unstack_layers(params), PROMPTS, LIMIT, sampling)

    @jax.jit
    def draw(tokens, first, setting):
        """The drawn and the likeliest token at each of LIMIT places from `first` on."""
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        hidden = model.hidden(params, tokens, positions, no_branches(*tokens.shape))
        rows = jax.lax.dynamic_slice_in_dim(model.logits(params, hidden)[0], first, LIMIT)
        left = restrict(rows, jax.tree.map(lambda x: jnp.repeat(x, LIMIT), setting))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(setting.seed[0]), jnp.arange(LIMIT))
        return jax.vmap(jax.random.categorical)(keys, left), rows.argmax(axis=1)

    for row, (prompt, new) in enumerate(zip(PROMPTS, written, strict=True)):
        whole = np.zeros((1, 32), np.int32)
        whole[0, : len(prompt) + LIMIT] = prompt + new.ids
        its = jax.tree.map(operator.itemgetter(slice(row, row + 1)), sampling)
        drawn, likeliest = draw(whole, len(prompt) - 1, its)
        assert new.ids == (drawn if sampling.temperature[row] > 0 else likeliest).tolist()


@pytest.mark.slow
def test_rows_are_independent_of_each_other(tiny):
    """A row generates the same tokens alone and in a batch, whatever the padding."""
    model, params = tiny
    unstacked = unstack_layers(params)
    together = generate(model, unstacked, PROMPTS, LIMIT, make_sampling(4, 1.3, seed=[3, 1, 4, 1]))
    alone = [
        generate(model, unstacked, [prompt], LIMIT, make_sampling(1, 1.3, seed=seed))[0]
        for prompt, seed in zip(PROMPTS[:2], [3, 1], strict=True)
    ]
    assert together[:2] == alone


def test_a_stop_token_ends_only_its_row(tiny):
    model, params = tiny
    free = generate(model, unstack_layers(params), PROMPTS, LIMIT, make_sampling(4))
    stop = [free[0].ids[4], free[2].ids[0]]
    found = generate(model, unstack_layers(params), PROMPTS, LIMIT, make_sampling(4), stop=stop)
    for row, whole in zip(found, free, strict=True):
        ends = [i for i, token in enumerate(whole.ids) if token in stop]
        assert row == ((whole.ids[: ends[0]], True) if ends else whole)
    assert found[0].stopped and found[2].ids == []


class Counting(Qwen3):
    """Counts how often its output head is traced."""

    traces = 0

    def logits(self, params, hidden):
        type(self).traces += 1
        return super().logits(params, hidden)


@pytest.mark.slow
def test_there_is_one_program_per_bucket(tiny):
    """Other prompts, settings, limits and stop tokens compile nothing new; a longer prompt does."""
    _, params = tiny
    model, unstacked = Counting(TINY), unstack_layers(params)
    run = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
    for count, limit, stop, changes in (
        (2, 20, [], {}),
        (3, 19, [5], {"temperature": 1.0}),
        (8, 17, [7, 8, 9], {"temperature": 2.0, "top_k": 3, "top_p": 0.5, "seed": 9}),
    ):
        generate(model, unstacked, [[1] * count, [2]], limit, make_sampling(2, **run | changes), stop)
        assert Counting.traces == 2  # once in the prefill, once in the loop
    generate(model, unstacked, [[1] * 9, [2]], 20, make_sampling(2))
    assert Counting.traces == 4


@pytest.mark.parametrize(
    ("prompts", "limit", "stop", "message"),
    [
        ([], 4, [], "generate: found 0 prompts and a limit of 4, expected at least 1 of each"),
        ([[1]], 0, [], "generate: found 1 prompts and a limit of 0, expected at least 1 of each"),
        ([[1], []], 4, [], "prompts[1]: found no token ids, expected at least one"),
        ([[1, 61]], 4, [], "prompts[0]: found token id 61, expected ids in [0, 61)"),
        ([[1]], 4, [3, -1], "stop: found [3, -1], expected token ids of at least 0"),
    ],
)
def test_bad_requests_are_named(tiny, prompts, limit, stop, message):
    model, params = tiny
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        generate(model, unstack_layers(params), prompts, limit, make_sampling(max(1, len(prompts))), stop)
