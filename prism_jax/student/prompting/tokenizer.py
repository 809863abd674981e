"""A tokenizer that never produces special tokens from text.

The ids of special tokens are looked up by name. Text is encoded by a tokenizer without special tokens, so `<|im_end|>`
inside an event becomes ordinary pieces. It is built on the `tokenizers` library, from a byte-level BPE vocabulary
trained for the run or from any `tokenizer.json`.
"""

from __future__ import annotations

import functools
import json
import pathlib
import textwrap
from array import array
from collections.abc import Iterable

import tokenizers
from etils import epath
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from prism_jax.runtime.files import on_disk, read_bounded, read_object, write_text
from prism_jax.runtime.model_files import inside
from prism_jax.student.prompting import pretokenizers

CHAT_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK_TOKENS = ("<think>", "</think>")
SPECIAL_TOKENS = (*CHAT_TOKENS, *THINK_TOKENS)
"""Special tokens of a vocabulary trained here. A loaded one must have `CHAT_TOKENS`; `THINK_TOKENS` are optional."""
CHAT_TEMPLATE = "chat_template.jinja"
_OLDER = ("vocab.json", "tokenizer.model")
_CACHED = 256  # characters of the longest text whose ids are kept; all that are kept then take less than 100 MiB
_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt"),
    *(*_OLDER, CHAT_TEMPLATE),
)


class Tokenizer:
    """Encodes text without special tokens and looks up special tokens by name.

    `size` counts special tokens too. `thinks` says whether the vocabulary has thinking tokens: a turn must switch them
    off. `chat_template` is the model's own (Jinja), for export; None for a vocabulary trained here. `definition` is the
    text of the `tokenizer.json`; equal texts define equal tokenizers.
    """

    def __init__(self, definition: str, chat_template: str | None = None):
        """Builds the tokenizer from the text of a `tokenizer.json`.

        Raises ValueError when the text is not a valid definition, or lacks a special token that the template needs.
        """
        self.definition = definition
        try:
            whole = tokenizers.Tokenizer.from_str(definition)
        except Exception as error:  # the library raises no narrower class
            raise ValueError(f"tokenizer: found no valid definition ({error}), expected a tokenizer.json") from error
        content = json.loads(definition)
        self._specials = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
        missing = [name for name in CHAT_TOKENS if name not in self._specials]
        if missing:
            raise ValueError(f"tokenizer: found no special token {', '.join(missing)}, expected a ChatML vocabulary")
        content["added_tokens"] = []
        # A saved tokenizer may also add special tokens to, truncate or pad what it encodes.
        content["post_processor"] = content["truncation"] = content["padding"] = None
        self._text = tokenizers.Tokenizer.from_str(json.dumps(content))
        self._whole = whole
        # Cached because the same short texts are encoded again and again.
        self._encode = functools.lru_cache(maxsize=1 << 14)(self._encode_uncached)
        self.size = max(whole.get_vocab(with_added_tokens=True).values()) + 1
        self.pad = self.special("<|endoftext|>")
        self.thinks = all(name in self._specials for name in THINK_TOKENS)
        self.chat_template = chat_template

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokenizer:
        """Trains a byte-level BPE vocabulary of at most `size` ids; deterministic in the order of `texts`.

        Raises ValueError when `size` is too small for the 256 bytes and the special tokens.
        """
        smallest = 256 + len(SPECIAL_TOKENS)
        if size < smallest:
            raise ValueError(f"vocab_size: found {size}, expected at least {smallest} (bytes and special tokens)")
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pretokenizers.qwen()
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size - len(SPECIAL_TOKENS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        return cls(tokenizer.to_str())

    @classmethod
    def load(cls, path: epath.PathLike) -> Tokenizer:
        """Reads a `tokenizer.json`, or the tokenizer of a model directory or GGUF file, with its chat template.

        A directory without tokenizer.json, for example with vocab.json and merges.txt, is read by transformers.

        Raises:
          FileNotFoundError: naming the path, when there is no tokenizer.
          ValueError: naming the file, when it is not a usable tokenizer, is larger than
            `prism_jax.runtime.files.MOST_LINE_BYTES`, or a link leads out of the directory (`model_files.inside`).
        """
        path = epath.Path(path)
        if path.suffix == ".gguf":
            from prism_jax.student.prompting.gguf_tokenizer import read_gguf_tokenizer  # needs an extra

            gguf = read_gguf_tokenizer(path)
            return cls(gguf.definition, gguf.chat_template)
        if path.is_dir():
            _check_files(path)
        if not (path / "tokenizer.json").exists() and any((path / name).is_file() for name in _OLDER):
            return cls(*_read_older(path))
        path = path / "tokenizer.json" if path.is_dir() else path
        data = read_bounded(path, ValueError, expected="a tokenizer.json or a directory that holds one")
        template = _chat_template(path.parent)
        try:
            return cls(data.decode("utf-8"), template)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, path: epath.PathLike) -> None:
        """Writes the chat template beside `path`, if there is one, and then the `tokenizer.json`, each atomically."""
        path = epath.Path(path)
        if self.chat_template is not None:
            write_text(path.parent / CHAT_TEMPLATE, self.chat_template)
        write_text(path, self.definition)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; they never include a special token, whatever the text contains."""
        # Texts come from users: if long ones were kept, whoever writes them could fill the memory.
        return list(self._encode(text) if len(text) <= _CACHED else self._encode_uncached(text))

    def _encode_uncached(self, text: str) -> array[int]:
        return array("I", self._text.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, including special tokens."""
        return self._whole.decode(list(ids), skip_special_tokens=False)

    def texts(self) -> dict[int, str]:
        """The text of every id that is not a special token; bytes that are no whole character become U+FFFD."""
        ordinary = sorted({*self._text.get_vocab(with_added_tokens=False).values()} - {*self._specials.values()})
        return dict(zip(ordinary, self._whole.decode_batch([[token] for token in ordinary]), strict=True))

    def special(self, name: str) -> int:
        """Id of a special token; raises KeyError for a name that is none."""
        return self._specials[name]

    def only(self, text: str) -> int:
        """Id of a text that is a single token; raises ValueError for any other text."""
        ids = self.encode(text)
        if len(ids) != 1:
            raise ValueError(
                f"tokenizer: found {len(ids)} tokens for {text!r}, expected one: answers are single tokens"
            )
        return ids[0]


def _check_files(folder: epath.Path) -> None:
    """Refuses tokenizer files that are no files, or links out of the folder, as those of the weights are."""
    if not on_disk(folder):
        return
    for name in _FILES:
        path = pathlib.Path(folder / name)
        if path.exists() or path.is_symlink():
            inside(pathlib.Path(folder), name)


def _read_older(folder: epath.Path) -> tuple[str, str | None]:
    """Reads the definition of a tokenizer that is in other files than tokenizer.json, and the chat template."""
    import transformers  # slow to import

    try:
        loaded = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        return loaded.backend_tokenizer.to_str(), _chat_template(folder)
    except Exception as error:  # the library raises no narrower class
        reason = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise ValueError(
            f"{folder}: found no tokenizer.json, and files that transformers cannot read ({reason}), expected either"
        ) from error


def _chat_template(folder: epath.Path) -> str | None:
    """Reads the chat template of a model folder: a separate file, or a key of tokenizer_config.json."""
    if (template_file := folder / CHAT_TEMPLATE).exists():
        try:
            return read_bounded(template_file, ValueError).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{template_file}: found byte {error.object[error.start]:#04x} at {error.start}, expected UTF-8"
            ) from None
    config = folder / "tokenizer_config.json"
    if not config.exists():
        return None
    template = read_object(config, "transformers").get("chat_template")
    return template if isinstance(template, str) else None
