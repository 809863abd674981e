import json
import re
import subprocess
import sys
import tracemalloc
import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.runtime.files import MOST_LINE_BYTES
from prism_jax.student.prompting.template import ACCEPT, NEED, NO, YES, PromptConfig, corpus
from prism_jax.student.prompting.tokenizer import SPECIAL_TOKENS, Tokenizer

TEXTS = ("The parser fails.", "The parser works again.", " yes", " no", "Needed:", "user\n", "Stares at the bike.")


@pytest.fixture(scope="module")
def small():
    return Tokenizer.train(TEXTS, 300)


def encode_in_a_fresh_process():
    """Trains and encodes the same texts in another process, with another hash seed."""
    program = (
        "from prism_jax.student.prompting.tokenizer import Tokenizer\n"
        f"print(Tokenizer.train({TEXTS!r}, 300).encode('The parser stares at café №9.'))"
    )
    return json.loads(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    )


def test_training_is_deterministic(small, tmp_path):
    small.save(tmp_path / "first.json")
    Tokenizer.train(iter(TEXTS), 300).save(tmp_path / "second.json")
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()
    assert encode_in_a_fresh_process() == small.encode("The parser stares at café №9.")


def test_trained_vocabulary_has_every_byte_the_specials_and_at_most_the_requested_size(small):
    assert 256 + len(SPECIAL_TOKENS) < small.size <= 300
    assert sorted(small.special(name) for name in SPECIAL_TOKENS) == list(range(small.size - 5, small.size))
    assert small.pad == small.special("<|endoftext|>")
    assert small.decode([small.special("<|im_start|>")]) == "<|im_start|>"


def test_a_vocabulary_without_merges_is_the_bytes(small):
    bare = Tokenizer.train(TEXTS, 261)
    assert bare.size == 261
    assert len(bare.encode("The parser é")) == len("The parser é".encode())
    assert len(small.encode("The parser é")) < len("The parser é".encode())


def test_training_rejects_a_size_below_the_bytes():
    with pytest.raises(ValueError, match=r"^vocab_size: found 260, expected at least 261 "):
        Tokenizer.train(TEXTS, 260)


def test_merges_never_cross_words_digits_or_lines():
    greedy = Tokenizer.train(["the end\nthe end\n 12 12 yes! yes!"] * 50, 400)
    texts = {greedy.decode([i]) for i in range(greedy.size - len(SPECIAL_TOKENS))}
    assert {"the", " end", "\n", " yes", "!"} <= texts
    assert not {"12", " 1", "the end", "end\n", "yes!", "\nthe"} & texts


@given(text=st.text())
def test_decoding_gives_back_the_normalised_text(small, text):
    assert small.decode(small.encode(text)) == unicodedata.normalize("NFC", text)


SPELLINGS = [spelling for name in SPECIAL_TOKENS for spelling in (name, f" {name}", f"{name}{name}", f"a{name}b\n")]


@pytest.mark.parametrize("which", ["small", "qwen3_tokenizer"])
@settings(max_examples=200)
@given(text=st.lists(st.sampled_from([*SPELLINGS, "<|", "im_", "end|>", "<", "think>", "/"]) | st.text()).map("".join))
def test_no_text_becomes_a_special_token(which, request, text):
    tokenizer = request.getfixturevalue(which)
    specials = {tokenizer.special(name) for name in SPECIAL_TOKENS}
    assert not specials & set(tokenizer.encode(text))


def test_every_added_token_of_qwen3_is_plain_text(qwen3_tokenizer, qwen3_folder):
    added = json.loads((qwen3_folder / "tokenizer.json").read_text())["added_tokens"]
    assert len(added) == 26
    for token in added:
        assert qwen3_tokenizer.special(token["content"]) == token["id"]
        ids = qwen3_tokenizer.encode(token["content"])
        assert len(ids) > 1 and token["id"] not in ids
        assert qwen3_tokenizer.decode(ids) == token["content"]


def test_qwen3_text_is_encoded_as_its_own_tokenizer_does(qwen3_tokenizer, qwen3_folder):
    own = tokenizers.Tokenizer.from_file(str(qwen3_folder / "tokenizer.json"))
    assert qwen3_tokenizer.size == 151_669
    for text in ("def f(x):\n    return x", "  Ünïcode  ñ 12 345", "Needed:", "日本語 ok\n\n\n", "I'll say: don't!"):
        assert qwen3_tokenizer.encode(text) == own.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", ["trained", "qwen3"])
def test_answers_are_single_different_tokens(name, request, simulated):
    if name == "qwen3":
        tokenizer = request.getfixturevalue("qwen3_tokenizer")
    else:
        tokenizer = Tokenizer.train(corpus(simulated, PromptConfig()), 400)
    assert tokenizer.decode([tokenizer.only(YES)]) == YES
    assert tokenizer.decode([tokenizer.only(NO)]) == NO
    # The text of a slot and its answer, encoded together, is split between them.
    for slot in (NEED, ACCEPT):
        for answer in (YES, NO):
            assert tokenizer.encode(slot + answer) == [*tokenizer.encode(slot), tokenizer.only(answer)]


def test_only_rejects_several_tokens(small):
    with pytest.raises(ValueError, match=r"^tokenizer: found \d+ tokens for ' perhaps', expected one"):
        small.only(" perhaps")


def test_save_and_load_give_the_same_tokenizer(small, tmp_path):
    small.save(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    for path in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path)):
        loaded = Tokenizer.load(path)
        assert (loaded.size, loaded.pad) == (small.size, small.pad)
        assert [loaded.special(name) for name in SPECIAL_TOKENS] == [small.special(name) for name in SPECIAL_TOKENS]
        for text in (*TEXTS, "<|im_end|>", "№ ５"):
            assert loaded.encode(text) == small.encode(text)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("place", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_models_chat_template_travels_with_its_tokenizer(small, tmp_path, place):
    (tmp_path / "model").mkdir()
    small.save(tmp_path / "model" / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "model").chat_template is None
    text = "{{ messages }}"
    (tmp_path / "model" / place).write_text(text if place.endswith("jinja") else json.dumps({"chat_template": text}))
    (tmp_path / "run").mkdir()
    Tokenizer.load(tmp_path / "model").save(tmp_path / "run" / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "run").chat_template == text


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja"])
def test_tokenizer_files_may_link_within_the_hubs_cache_only(small, tmp_path, name):
    model = tmp_path / "hub" / "models--some--model"
    snapshot = model / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    small.save(snapshot / "tokenizer.json")
    (snapshot / "chat_template.jinja").write_text("{{ messages }}")
    blob = (snapshot / name).rename(model / "blobs" / "0123abc")
    (snapshot / name).symlink_to("../../blobs/0123abc")
    found = Tokenizer.load(snapshot)
    assert (found.definition, found.chat_template) == (small.definition, "{{ messages }}")
    other = blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(other)
    with pytest.raises(ValueError, match=rf"^{snapshot}/{name}: found a symlink out of the directory \(to {other}\)"):
        Tokenizer.load(snapshot)


def test_a_tokenizer_beyond_the_limit_is_refused_before_it_is_parsed(small, tmp_path):
    small.save(tmp_path / "tokenizer.json")
    with (tmp_path / "tokenizer.json").open("r+b") as file:
        file.truncate(MOST_LINE_BYTES + 1)
    with pytest.raises(ValueError, match=f"^{tmp_path}/tokenizer.json: found a file of more than {MOST_LINE_BYTES} "):
        Tokenizer.load(tmp_path)


def older(tokenizer, folder):
    """Writes the files of older models, without tokenizer.json: vocabulary, merges and config."""
    tokenizer.save(folder / "tokenizer.json")
    definition = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    tokenizers.Tokenizer.from_str(json.dumps(definition)).model.save(str(folder))
    added = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in definition["added_tokens"]}
    config = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added, "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_a_directory_without_tokenizer_json_is_read_through_transformers(small, tmp_path):
    older(small, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["merges.txt", "tokenizer_config.json", "vocab.json"]
    read = Tokenizer.load(tmp_path)
    text = "Don't  stop at 1234 é\n\n <|im_end|>"
    assert read.encode(text) == small.encode(text)
    assert [read.special(name) for name in SPECIAL_TOKENS] == [small.special(name) for name in SPECIAL_TOKENS]
    assert (read.size, read.chat_template) == (small.size, "{{ messages }}")


def test_older_files_that_transformers_cannot_read_are_named(small, tmp_path):
    older(small, tmp_path)
    (tmp_path / "vocab.json").write_text("[")
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}: found no tokenizer.json, and files that")):
        Tokenizer.load(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    for path, named in ((tmp_path, tmp_path / "tokenizer.json"), (tmp_path / "x.json", tmp_path / "x.json")):
        with pytest.raises(FileNotFoundError) as error:
            Tokenizer.load(path)
        assert str(error.value).startswith(f"{named}: no such file, expected a tokenizer.json")


def definition(small, tmp_path):
    """The parsed tokenizer.json of `small`."""
    small.save(tmp_path / "whole.json")
    return json.loads((tmp_path / "whole.json").read_text())


def test_missing_specials_are_named(small, tmp_path):
    content = definition(small, tmp_path)
    content["added_tokens"] = [token for token in content["added_tokens"] if "im_" not in token["content"]]
    message = r"^tokenizer: found no special token <\|im_start\|>, <\|im_end\|>, expected a ChatML"
    with pytest.raises(ValueError, match=message):
        Tokenizer(json.dumps(content))
    with pytest.raises(ValueError, match=r"^tokenizer: found no special token <\|endoftext\|>, "):
        Tokenizer('{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}')
    with pytest.raises(KeyError, match="im_middle"):
        small.special("<|im_middle|>")


@pytest.mark.parametrize("content", [b"{", b"[]", b"", b'{"version": "1.0"}', b"\xff"])
def test_an_invalid_tokenizer_file_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    for named in (path, tmp_path):
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: "):
            Tokenizer.load(named)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("tokenizer_config.json", b"{", "found broken JSON"),
        ("tokenizer_config.json", b"[]", r"found \[\], expected an object"),
        ("chat_template.jinja", b"{{ messages }}\xff", "found byte 0xff at 14, expected"),
    ],
)
def test_an_invalid_file_beside_the_tokenizer_is_named(small, tmp_path, name, content, found):
    small.save(tmp_path / "tokenizer.json")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path / name))}: {found}"):
        Tokenizer.load(tmp_path)


def test_truncation_padding_and_framing_in_a_file_are_ignored(small, tmp_path):
    """A saved tokenizer may truncate, pad or add special tokens; an event is encoded without any of these."""
    whole = tokenizers.Tokenizer.from_str(json.dumps(definition(small, tmp_path)))
    whole.enable_truncation(4)
    whole.enable_padding(length=16)
    whole.post_processor = tokenizers.processors.TemplateProcessing(
        single="<think> $A", special_tokens=[("<think>", small.special("<think>"))]
    )
    framed = Tokenizer(whole.to_str())
    for text in ("a", "The parser stares at the bike for long."):
        assert framed.encode(text) == small.encode(text)


def test_texts_that_are_remembered_take_little_memory(small):
    """16,384 of them at most; of the longest that are kept, here with four tokens per character."""
    tracemalloc.start()
    for i in range(200):
        assert len(small.encode(f"{i:3}" + "\N{GRINNING FACE}" * 253)) > 1000
    size = tracemalloc.get_traced_memory()[0] / 200
    tracemalloc.stop()
    assert size * 2**14 < 100 * 2**20
