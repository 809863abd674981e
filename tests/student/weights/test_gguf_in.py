"""GGUF files, compared with the models they were written from and with what transformers reads from them."""

import gguf
import jax
import numpy as np
import pytest
from gguf_models import reorder, write_gguf
from hf_models import libraries, random_model, their_logits

from prism_jax.student.weights import load, load_gguf, load_hf

# Quantisers need row lengths that are multiples of 32; head widths are those that transformers assumes.
EVEN = {"hidden_size": 64, "intermediate_size": 96, "theta": 1e5, "rms_norm_eps": 1e-5}
VARIANTS = [
    {"kind": "Llama", "tie_word_embeddings": True, "head_dim": 16, **EVEN},
    {"kind": "Qwen3", "tie_word_embeddings": False, "head_dim": 128, **EVEN},
]
TOKENS = [f"<{i}>" for i in range(61)]


@pytest.fixture(scope="module", params=VARIANTS, ids=["llama", "qwen3"])
def theirs(request):
    return random_model(**request.param)


def test_what_the_file_holds_is_the_model_it_was_written_from(theirs, tmp_path):
    """The config and all weights are equal, bit for bit, in float32; rows are reordered for Llama but not for Qwen3."""
    theirs.save_pretrained(tmp_path)
    want, got = load_hf(tmp_path, "float32"), load_gguf(write_gguf(tmp_path / "model.gguf", theirs), "float32")
    assert got.model == want.model
    jax.tree.map(np.testing.assert_array_equal, got.params, want.params)
    lowest = [load(tmp_path, "float32", blocks=1), load(tmp_path / "model.gguf", "float32", blocks=1)]
    jax.tree.map(np.testing.assert_array_equal, *(one.params for one in lowest))


@pytest.mark.parametrize("form", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_matrices_are_what_the_package_dequantises(theirs, form, tmp_path):
    """The file holds rounded numbers, which are read without another rounding."""
    torch, _ = libraries()
    got = load_gguf(write_gguf(tmp_path / "model.gguf", theirs, form), "float32")
    kind = gguf.GGMLQuantizationType[form]
    rounded = type(theirs)(theirs.config).eval()
    state = {
        name: torch.tensor(gguf.dequantize(gguf.quantize(tensor.numpy(), kind), kind)) if tensor.ndim == 2 else tensor
        for name, tensor in theirs.state_dict().items()
    }
    rounded.load_state_dict(state)
    rounded.save_pretrained(tmp_path / "rounded")
    want = load_hf(tmp_path / "rounded", "float32")
    jax.tree.map(np.testing.assert_array_equal, got.params, want.params)
    assert (np.asarray(got.params["embedding"]) != theirs.get_input_embeddings().weight.detach().numpy()).any()


def test_logits_equal_transformers_own_reading(theirs, tmp_path):
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with it")
    _, transformers = libraries()
    path = write_gguf(tmp_path / "model.gguf", theirs, "Q8_0", TOKENS)
    ours = load_gguf(path, "float32")
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype="float32").eval()
    tokens = np.random.default_rng(0).integers(61, size=(2, 17))
    want = their_logits(read, tokens)
    assert want.std() > 0.5
    np.testing.assert_allclose(ours.logits(tokens), want, atol=1e-4, rtol=0)


def test_the_order_of_rows_matters(theirs, tmp_path):
    """Only Llama files have reordered rows, and for them the order matters."""
    ours = load_gguf(write_gguf(tmp_path / "model.gguf", theirs), "float32")
    heads = theirs.config.num_attention_heads
    q = np.asarray(ours.params["layers"]["attention"]["q_proj"]["kernel"][0]).T
    stored = next(t.data for t in gguf.GGUFReader(tmp_path / "model.gguf").tensors if t.name == "blk.0.attn_q.weight")
    np.testing.assert_array_equal(stored, reorder(q, heads) if theirs.config.model_type == "llama" else q)
    assert (reorder(q, heads) != q).any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("rope.scaling.type", "yarn")], r"llama: rope\.scaling\.type: found 'yarn' .str., expected 'none'"),
        ([("rope.scaling.factor", 4)], r"llama: rope\.scaling\.factor: found 4, expected 1"),  # linear, without a type
        ([("expert_count", 8)], r"llama: expert_count: found 8 .int., expected 0"),
        ([("attention.sliding_window", 512)], r"llama: attention\.sliding_window: found 512 .int., expected 0"),
    ],
)
def test_what_the_student_does_not_have_is_refused_by_name(fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_gguf(write_gguf(tmp_path / "model.gguf", random_model("Llama"), fields=fields), "float32")


def test_another_architecture_is_refused_by_name(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "gemma3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match=r"general\.architecture: found 'gemma3', expected qwen3 or llama$"):
        load_gguf(tmp_path / "model.gguf", "float32")


def test_a_vocabulary_of_another_size_than_the_embedding_is_an_error(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", random_model("Llama"), tokens=TOKENS[:60])
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.tokens: found 60 tokens, expected 61, the rows of"):
        load_gguf(path, "float32")


def test_missing_and_unexpected_tensors_are_named_together(tmp_path):
    swap = {"blk.1.attn_q.weight": "blk.1.attn_q.bias", "output_norm.weight": "rope_freqs.weight"}
    path = write_gguf(tmp_path / "model.gguf", random_model("Llama"), rename=lambda name: swap.get(name, name))
    with pytest.raises(ValueError) as error:
        load_gguf(path, "float32")
    assert str(error.value) == (
        f"{path}: found tensors that don't fit the model: missing blk.1.attn_q.weight, output_norm.weight; "
        "unexpected blk.1.attn_q.bias, rope_freqs.weight"
    )
