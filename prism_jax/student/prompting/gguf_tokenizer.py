"""Converts the tokenizer inside a GGUF file to a `tokenizer.json` definition for the `tokenizers` library.

A GGUF file holds tokens, merges, the type of each token and the name of the pre-tokenizer, but not the definition
behind that name. The table `_KINDS` gives it for the byte-level vocabularies of the models that the student supports.
"""

from __future__ import annotations

import dataclasses
import pathlib
import reprlib
from typing import Any

import numpy as np
import tokenizers
from etils import epath
from tokenizers import AddedToken, decoders, models, normalizers

from prism_jax.runtime.gguf_file import read_gguf_header
from prism_jax.student.prompting import pretokenizers

# Values of tokenizer.ggml.token_type.
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5


@dataclasses.dataclass(frozen=True)
class GGUFTokenizer:
    """The tokenizer of a GGUF file."""

    definition: str  # text of an equivalent `tokenizer.json`
    chat_template: str | None  # the model's chat template (Jinja); None where the file has none
    eos_token_id: int | None  # id of the token that ends a turn; None where the file has none
    bos_token_id: int | None  # id of the token that begins a text; None where the file has none
    pad_token_id: int | None  # id of the padding token; None where the file has none


def read_gguf_tokenizer(path: epath.PathLike) -> GGUFTokenizer:
    """Reads the tokenizer of a GGUF file with a byte-level BPE vocabulary (`tokenizer.ggml.model` is gpt2).

    Raises:
      FileNotFoundError: naming the path, when there is no such file.
      ValueError: naming the field, when the file is corrupt or its tokenizer isn't supported.
    """
    fields = _Fields(pathlib.Path(path))
    fields.one_of("tokenizer.ggml.model", ["gpt2"])
    kind = fields.one_of("tokenizer.ggml.pre", list(_KINDS))
    for name in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        fields.one_of(f"tokenizer.ggml.{name}", [False, None])  # the template writes every token itself
    tokens = fields.strings("tokenizer.ggml.tokens")
    if repeated := len(tokens) - len(set(tokens)):
        raise fields.error("tokenizer.ggml.tokens", f"{repeated} tokens twice", "each once")
    return GGUFTokenizer(
        definition=_definition(fields, kind, tokens),
        chat_template=fields.get("tokenizer.chat_template"),
        eos_token_id=fields.token_id("eos", len(tokens)),
        bos_token_id=fields.token_id("bos", len(tokens)),
        pad_token_id=fields.token_id("padding", len(tokens)),
    )


def _definition(fields: _Fields, kind: str, tokens: list[str]) -> str:
    """The text of the `tokenizer.json`; the id of a token is its position in the file's list."""
    types = fields.get("tokenizer.ggml.token_type")
    if not isinstance(types, list) or len(types) != len(tokens):
        found = f"{len(types)} entries" if isinstance(types, list) else reprlib.repr(types)
        raise fields.error("tokenizer.ggml.token_type", found, f"{len(tokens)}, one per token")
    vocabulary = {token: i for i, token in enumerate(tokens) if types[i] != _UNUSED}
    pairs = (merge.partition(" ") for merge in fields.strings("tokenizer.ggml.merges"))
    merges = [(left, right) for left, _, right in pairs]
    try:
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the library raises no narrower class
        raise fields.error("tokenizer.ggml.merges", str(error), "pairs whose joined text is a token") from None
    tokenizer.pre_tokenizer = _KINDS[kind]()
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    added = [
        AddedToken(token, normalized=False, special=types[i] == _CONTROL)
        for i, token in enumerate(tokens)
        if types[i] in (_CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    return tokenizer.to_str()


# Maps tokenizer.ggml.pre to the pre-tokenizer.
_KINDS = {"gpt-2": pretokenizers.gpt2, "smollm": pretokenizers.smollm, "qwen2": pretokenizers.qwen}


class _Fields:
    """The metadata fields of a GGUF file; errors name the file and the field."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._fields = read_gguf_header(path).fields

    def error(self, name: str, found: str, expected: str) -> ValueError:
        """Builds an error that names the file and the field."""
        return ValueError(f"{self.path}: {name}: found {found}, expected {expected}")

    def get(self, name: str) -> Any:
        """Content of a field, arrays of numbers as lists; None where it is absent."""
        value = self._fields.get(name)
        return value.tolist() if isinstance(value, np.ndarray) else value

    def one_of(self, name: str, values: list[Any]) -> Any:
        """Content of a field, which must be one of `values`."""
        content = self.get(name)
        if content not in values:
            raise self.error(name, reprlib.repr(content), " or ".join(repr(value) for value in values))
        return content

    def strings(self, name: str) -> list[str]:
        """Content of a field that is a list of strings."""
        content = self.get(name)
        if not isinstance(content, list) or not content or not isinstance(content[0], str):
            raise self.error(name, "nothing" if content is None else type(content).__name__, "a list of strings")
        return content

    def token_id(self, name: str, count: int) -> int | None:
        """Id of a special token; None where the file names none."""
        field = f"tokenizer.ggml.{name}_token_id"
        token = self.get(field)
        if token is not None and (not isinstance(token, int) or not 0 <= token < count):
            raise self.error(field, reprlib.repr(token), f"an id below {count}")
        return token
