"""Loading and saving weights, compared with transformers: logits, generated tokens and stored bits."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
from hf_models import SPELLINGS, edit_tensors, libraries, random_model, spell_as_transformers_4, stored, their_logits

from prism_jax.student.weights import Pretrained, load_hf, save_hf

VARIANTS = {
    "qwen3, tied, 2 queries a key, wide heads": {"kind": "Qwen3", "tie_word_embeddings": True},
    "qwen3, untied, 4 queries a key, narrow heads": {
        "kind": "Qwen3",
        "tie_word_embeddings": False,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "theta": 1e6,
    },
    "llama, tied, a key each, other epsilon": {
        "kind": "Llama",
        "tie_word_embeddings": True,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
    },
    "llama, untied, 3 queries a key, heads that fill the width": {
        "kind": "Llama",
        "tie_word_embeddings": False,
        "num_attention_heads": 6,
        "head_dim": 4,
        "theta": 1e5,
    },
}


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS.keys())
def pair(request, tmp_path_factory):
    """Transformers' model, and ours loaded from what it saved; every other one in transformers 4's spelling."""
    folder = tmp_path_factory.mktemp("model")
    theirs = random_model(**request.param)
    theirs.save_pretrained(folder)
    if not request.param["tie_word_embeddings"]:
        spell_as_transformers_4(folder)
    return theirs, load_hf(folder, "float32"), folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """An untied model and the folder that it was loaded from."""
    folder = tmp_path_factory.mktemp("model")
    random_model(tie_word_embeddings=False).save_pretrained(folder)
    return load_hf(folder, "float32"), folder


def draw_tokens(rows=2, length=23):
    return np.random.default_rng(0).integers(61, size=(rows, length))


def test_what_we_read_computes_what_transformers_does(pair):
    theirs, ours, _ = pair
    tokens = draw_tokens()
    want = their_logits(theirs, tokens)
    got = ours.logits(tokens)
    assert want.std() > 0.5  # logits near 0 would agree in any case
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)


def test_transformers_computes_what_we_write(pair, draw_params, tmp_path):
    """Random parameters under the config of each variant."""
    _, transformers = libraries()
    _, ours, _ = pair
    mine = Pretrained(ours.model, draw_params(ours.model, seed=1))
    save_hf(tmp_path, mine.model, mine.params, eos_token_id=[3, 5], pad_token_id=3)
    read, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(read).__name__ == ("Qwen3ForCausalLM" if ours.model.config.qk_norm else "LlamaForCausalLM")
    assert not any(report.values())
    assert (read.generation_config.eos_token_id, read.generation_config.pad_token_id) == ([3, 5], 3)
    tokens = draw_tokens()
    want = mine.logits(tokens)
    assert np.asarray(want).std() > 0.5
    np.testing.assert_allclose(their_logits(read, tokens), want, atol=1e-4, rtol=0)


def test_rows_padded_on_the_right(pair):
    theirs, ours, _ = pair
    lengths, tokens = [23, 9], draw_tokens()
    mask = (np.arange(23) < np.array(lengths)[:, None]).astype(np.int64)
    want, got = their_logits(theirs, np.where(mask, tokens, 0), mask), ours.logits(np.where(mask, tokens, 0))
    np.testing.assert_allclose(np.asarray(got)[mask > 0], want[mask > 0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("kind", "tied"), [("Qwen3", False), ("Llama", True)])
def test_a_round_trip_keeps_every_bit_and_the_config(kind, tied, dtype, tmp_path):
    """Loads transformers' shards and saves shards, both too small for two large tensors."""
    torch, transformers = libraries()
    theirs = random_model(kind, tie_word_embeddings=tied, theta=3e5, max_position_embeddings=77, rms_norm_eps=2e-5)
    theirs = theirs.to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="8KB")
    read = load_hf(tmp_path / "theirs", dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(read.params)} == {np.dtype(dtype)}
    save_hf(tmp_path / "ours", read.model, read.params, max_shard_bytes=8000)
    want, got = stored(tmp_path / "theirs"), stored(tmp_path / "ours")
    assert want.keys() == got.keys()
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype == np.dtype(dtype)
        assert got[name].tobytes() == tensor.tobytes(), name
    back = transformers.AutoConfig.from_pretrained(tmp_path / "ours").to_dict()
    differing = {name for name, value in theirs.config.to_dict().items() if back[name] != value}
    assert differing <= {"architectures", "_name_or_path", "max_window_layers"}
    again = load_hf(tmp_path / "ours", dtype)
    assert again.model == read.model
    jax.tree.map(np.testing.assert_array_equal, again.params, read.params)


def test_shards_hold_what_the_index_says_and_no_more_than_asked_for(ours, tmp_path):
    ours, _ = ours
    save_hf(tmp_path, ours.model, ours.params, max_shard_bytes=8000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    sizes = {}
    for path in tmp_path.glob("*.safetensors"):
        tensors = safetensors.numpy.load_file(path)
        assert {index["weight_map"][name] for name in tensors} == {path.name}
        with safetensors.safe_open(path, framework="numpy") as opened:
            assert opened.metadata() == {"format": "pt"}  # transformers 4 refuses files without it
        sizes[path.name] = [tensor.nbytes for tensor in tensors.values()]
    assert index["metadata"]["total_size"] == sum(map(sum, sizes.values()))
    assert sizes.keys() == set(index["weight_map"].values())
    assert all(sum(shard) <= 8000 for shard in sizes.values() if len(shard) > 1)


def test_other_dtypes_on_the_way_in_and_out(ours, tmp_path):
    """Loading a float32 checkpoint in bfloat16 rounds it, and so does saving."""
    ours, folder = ours
    low = load_hf(folder, "bfloat16")
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.astype("bfloat16")), low.params, ours.params)
    save_hf(tmp_path, ours.model, ours.params, dtype="bfloat16")
    written, read = stored(tmp_path), stored(folder)
    for name, tensor in read.items():
        np.testing.assert_array_equal(written[name], tensor.astype("bfloat16"))
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_tied_checkpoint_may_not_store_another_head(tmp_path):
    random_model(tie_word_embeddings=True).save_pretrained(tmp_path)
    edit_tensors(tmp_path, SPELLINGS["a tied head as well"])
    edit_tensors(tmp_path, lambda t: t["lm_head.weight"].__setitem__((60, 23), 7.0))
    with pytest.raises(ValueError, match=r"lm_head\.weight unlike model\.embed_tokens\.weight, to"):
        load_hf(tmp_path, "float32")


@pytest.mark.slow
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_a_file_that_transformers_reads_compute_the_same(spelling, tmp_path):
    _, transformers = libraries()
    random_model(tie_word_embeddings=True).save_pretrained(tmp_path)
    edit_tensors(tmp_path, SPELLINGS[spelling])
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype="float32").eval()
    tokens = draw_tokens()
    np.testing.assert_allclose(load_hf(tmp_path, "float32").logits(tokens), their_logits(theirs, tokens), atol=1e-4)


def test_ids_outside_of_the_vocabulary_are_errors(ours):
    ours, _ = ours
    for ids in ([[0, 61]], [[-1, 0]]):
        with pytest.raises(ValueError, match=r"^token_ids: found ids from -?\d+ to \d+, expected 0 to 60$"):
            ours.logits(np.array(ids))
