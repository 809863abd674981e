"""Converts the tokenizer inside a GGUF file to a `tokenizer.json` definition for the `tokenizers` library.

A GGUF file holds tokens, merges, the type of each token and the name of the pre-tokenizer, but not the definition
behind that name. The table `_KINDS` gives it for the byte-level vocabularies of the models that the student supports.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import tokenizers
from etils import epath
from tokenizers import AddedToken, decoders, models, normalizers

from prism_jax.runtime.gguf_file import read_gguf_header
from prism_jax.runtime.schema import Object, decode, some
from prism_jax.student.prompting import pretokenizers

# Values of tokenizer.ggml.token_type.
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
# Maps tokenizer.ggml.pre to the pre-tokenizer.
_KINDS = {"gpt-2": pretokenizers.gpt2, "smollm": pretokenizers.smollm, "qwen2": pretokenizers.qwen}
_TOKENS, _MERGES, _TYPES = (f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "token_type"))
_IDS = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "bos", "padding")]


def _kind(name: str) -> str:
    if name not in _KINDS:
        raise ValueError(f"found {name!r}, expected one of {', '.join(map(repr, _KINDS))}")
    return name


_OPTIONAL: dict[str, Any] = {
    "tokenizer.chat_template": str,
    **dict.fromkeys(_IDS, int),
    # The template writes every token itself.
    **{f"tokenizer.ggml.{name}": Literal[False] for name in ("add_bos_token", "add_eos_token", "add_space_prefix")},
}
_FIELDS = Object(
    {
        "tokenizer.ggml.model": Literal["gpt2"],
        "tokenizer.ggml.pre": Annotated[str, _kind],
        **dict.fromkeys((_TOKENS, _MERGES), Annotated[tuple[str, ...], some]),
        _TYPES: tuple[int, ...],
        **_OPTIONAL,
    },
    optional=_OPTIONAL,
)


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
    header = read_gguf_header(pathlib.Path(path)).fields
    listed = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in header.items()}
    fields: dict[str, Any] = decode(_FIELDS, listed, str(path), ValueError)
    tokens = fields[_TOKENS]
    if repeated := len(tokens) - len(set(tokens)):
        raise ValueError(f"{path}: {_TOKENS}: found {repeated} tokens twice, expected each once")
    for name in _IDS:
        if not 0 <= fields.get(name, 0) < len(tokens):
            raise ValueError(f"{path}: {name}: found {fields[name]}, expected an id below {len(tokens)}")
    eos, bos, padding = map(fields.get, _IDS)
    return GGUFTokenizer(_definition(fields, str(path)), fields.get("tokenizer.chat_template"), eos, bos, padding)


def _definition(fields: Mapping[str, Any], path: str) -> str:
    """The text of the `tokenizer.json`; the id of a token is its position in the file's list."""
    tokens, types, kind = fields[_TOKENS], fields[_TYPES], fields["tokenizer.ggml.pre"]
    if len(types) != len(tokens):
        raise ValueError(f"{path}: {_TYPES}: found {len(types)} entries, expected {len(tokens)}, one per token")
    vocabulary = {token: i for i, token in enumerate(tokens) if types[i] != _UNUSED}
    pairs = (merge.partition(" ") for merge in fields[_MERGES])
    merges = [(left, right) for left, _, right in pairs]
    try:
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the library raises no narrower class
        raise ValueError(f"{path}: {_MERGES}: found {error}, expected pairs whose joined text is a token") from None
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
