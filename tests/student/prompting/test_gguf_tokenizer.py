"""Tokenizers written to GGUF files and read back, compared with the original and with transformers; invalid fields."""

import re
import unicodedata

import pytest
import regex
import tokenizers
from gguf_tokenizers import contents, write
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.student.prompting.gguf_tokenizer import read_gguf_tokenizer
from prism_jax.student.prompting.tokenizer import SPECIAL_TOKENS, Tokenizer

gguf = pytest.importorskip("gguf", reason="the gguf package is an extra")

CORPUS = [
    "The parser fails at 12:30.",
    "it's <b>don't</b>  12 345\n\n  x = 3",
    "naïve café 你好 😀 ½ x² \t tab\r\n",
] * 20
TEXTS = [
    *CORPUS[:3],
    "<|im_start|>user\nhi<|im_end|>\n",
    "I'LL we'Re  2024-01-02",
    "   \n \n",
    "",
    " a  b   c",
    "e\u0301",
]
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@pytest.fixture(scope="module")
def original():
    """A byte-level vocabulary that splits as Qwen's does."""
    return Tokenizer.train(CORPUS, 300)


@pytest.fixture(scope="module")
def fields(original, tmp_path_factory):
    path = tmp_path_factory.mktemp("original") / "tokenizer.json"
    original.save(path)
    return contents(path.read_text())


@pytest.fixture(scope="module")
def read(fields, tmp_path_factory):
    """The tokenizers that are read, by pre-tokenizer."""
    folder = tmp_path_factory.mktemp("gguf")
    template = {"tokenizer.chat_template": "{{ messages }}"}
    return {
        kind: read_gguf_tokenizer(write(folder / f"{kind}.gguf", fields | template | {"pre": kind}))
        for kind in ("qwen2", "smollm", "gpt-2")
    }


def test_the_template_and_the_special_ids(read, original):
    found = read["qwen2"]
    assert found.chat_template == "{{ messages }}"
    assert (found.eos_token_id, found.bos_token_id, found.pad_token_id) == (original.special("<|im_end|>"), None, None)


@pytest.mark.slow
@settings(max_examples=200)
@given(text=st.text() | st.sampled_from(TEXTS) | st.lists(st.sampled_from(TEXTS)).map(" ".join))
def test_ids_are_those_of_the_tokenizer_that_was_written(read, original, text):
    again = Tokenizer(read["qwen2"].definition)
    assert again.encode(text) == original.encode(text)
    assert [again.special(name) for name in SPECIAL_TOKENS] == [original.special(name) for name in SPECIAL_TOKENS]
    assert again.size == original.size


def test_control_tokens_are_special_and_user_defined_ones_are_not(fields, tmp_path):
    """Both are matched as a whole; only the former are hidden when ids are decoded without special tokens."""
    types = [
        4 if token == "<think>" else kind for token, kind in zip(fields["tokens"], fields["token_type"], strict=True)
    ]
    found = read_gguf_tokenizer(write(tmp_path / "a.gguf", fields | {"token_type": types}))
    tokenizer = tokenizers.Tokenizer.from_str(found.definition)
    ids = tokenizer.encode("<think>a<|im_end|>").ids
    assert [tokenizer.id_to_token(i) for i in ids] == ["<think>", "a", "<|im_end|>"]
    assert tokenizer.decode(ids) == "<think>a"


def test_unused_tokens_are_not_in_the_vocabulary(fields, tmp_path):
    padded = {"tokens": [*fields["tokens"], "[PAD1]"], "token_type": [*fields["token_type"], 5]}
    found = read_gguf_tokenizer(write(tmp_path / "a.gguf", fields | padded))
    assert Tokenizer(found.definition).size == len(fields["tokens"])


@pytest.mark.parametrize("kind", [pytest.param("qwen2", marks=pytest.mark.slow), "gpt-2"])
def test_ids_are_those_that_transformers_reads(kind, fields, read, tmp_path):
    """Unlike Qwen's own tokenizer, theirs has no NFC normalisation here, so the text is normalised first."""
    transformers = pytest.importorskip("transformers")
    write(tmp_path / "a.gguf", fields | {"pre": kind})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="a.gguf")
    ours = tokenizers.Tokenizer.from_str(read[kind].definition)
    for text in TEXTS:
        want = theirs(unicodedata.normalize("NFC", text), add_special_tokens=False)["input_ids"]
        assert ours.encode(unicodedata.normalize("NFC", text)).ids == want, text


@settings(max_examples=200)
@given(text=st.text(alphabet="ab 0192½²\n.'s") | st.sampled_from(TEXTS[:3]))
def test_smollm_isolates_each_digit_and_then_splits_as_gpt2_does(read, text):
    """llama.cpp's definition of this pre-tokenizer: each pattern splits the pieces that the previous one left."""
    pieces = [part for part in regex.split(r"(\p{N})", text) if part]
    want = [piece for part in pieces for piece in regex.findall(GPT2_SPLIT, part)]
    splitter = tokenizers.Tokenizer.from_str(read["smollm"].definition).pre_tokenizer
    assert [text[start:stop] for _, (start, stop) in splitter.pre_tokenize_str(text)] == want


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "llama"}, "tokenizer.ggml.model: found 'llama' (str), expected 'gpt2'"),
        ({"pre": "tekken"}, "tokenizer.ggml.pre: found 'tekken', expected one of 'gpt-2', 'smollm', 'qwen2'"),
        ({"add_bos_token": True}, "tokenizer.ggml.add_bos_token: found True (bool), expected False"),
        ({"token_type": [1]}, "tokenizer.ggml.token_type: found 1 entries, expected 300, one per token"),
        ({"eos_token_id": 300}, "tokenizer.ggml.eos_token_id: found 300, expected an id below 300"),
        ({"merges": ["zz zz"]}, "tokenizer.ggml.merges: found "),
        ({"merges": [1, 2]}, "tokenizer.ggml.merges[0]: found 1 (int), expected text"),
        ({"tokens": ["a"] * 300}, "tokenizer.ggml.tokens: found 299 tokens twice, expected each once"),
    ],
)
def test_bad_fields_are_named(change, message, fields, tmp_path):
    path = write(tmp_path / "a.gguf", fields | change)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}: {message}')}[^\n]*$"):
        read_gguf_tokenizer(path)


@pytest.mark.slow
def test_qwen3s_own_tokenizer_survives(qwen3_folder, qwen3_tokenizer, tmp_path):
    """All 151,643 tokens and their merges, padded to the embedding's rows as llama.cpp does."""
    whole = contents((qwen3_folder / "tokenizer.json").read_text())
    room = 151_936 - len(whole["tokens"])
    padded = {
        "tokens": whole["tokens"] + [f"[PAD{i}]" for i in range(room)],
        "token_type": whole["token_type"] + [5] * room,
    }
    again = Tokenizer(read_gguf_tokenizer(write(tmp_path / "a.gguf", whole | padded)).definition)
    assert again.size == qwen3_tokenizer.size
    for text in TEXTS:
        assert again.encode(text) == qwen3_tokenizer.encode(text)
    assert [again.special(name) for name in SPECIAL_TOKENS] == [
        qwen3_tokenizer.special(name) for name in SPECIAL_TOKENS
    ]
