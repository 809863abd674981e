"""A tokenizer whose special tokens no text can forge.

Special tokens are ids asked for by name; text is encoded by a tokenizer that has none, so that `<|im_end|>` inside an
event is five ordinary pieces. Built on the `tokenizers` library: a run's own byte-level BPE, or any `tokenizer.json`.
"""

from __future__ import annotations

import functools
import json
import reprlib
import textwrap
from collections.abc import Iterable

import tokenizers
from etils import epath
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from prism_jax.prompting import pretokenizers
from prism_jax.runtime.files import parse_json, write_text

CHAT_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK_TOKENS = ("<think>", "</think>")
SPECIAL_TOKENS = (*CHAT_TOKENS, *THINK_TOKENS)
"""Those of a run's own vocabulary; a loaded one needs the chat's, and has the others if its model can think aloud."""
CHAT_TEMPLATE = "chat_template.jinja"
_OLDER = ("vocab.json", "tokenizer.model")


class Tokenizer:
    """Encodes text without special tokens and gives special tokens by name.

    Attributes:
      size: Number of ids, special ones included.
      pad: Id of the padding token.
      thinks: Whether the model can think aloud, so that a turn has to say that it doesn't.
      chat_template: The model's own chat template (Jinja), for its export; None for a run's own vocabulary.
    """

    def __init__(self, definition: str, chat_template: str | None = None):
        """Builds from the text of a `tokenizer.json`.

        Raises:
          ValueError: for text that defines no tokenizer, or when a special token that the template needs is missing.
        """
        self._definition = definition
        try:
            whole = tokenizers.Tokenizer.from_str(definition)
        except Exception as error:  # the library has no type of its own
            raise ValueError(f"tokenizer: found no valid definition ({error}), expected a tokenizer.json") from error
        content = json.loads(definition)
        self._specials = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
        missing = [name for name in CHAT_TOKENS if name not in self._specials]
        if missing:
            raise ValueError(f"tokenizer: found no special token {', '.join(missing)}, expected a ChatML vocabulary")
        content["added_tokens"] = []
        # A saved tokenizer may also frame, cut or pad what it encodes.
        content["post_processor"] = content["truncation"] = content["padding"] = None
        self._text = tokenizers.Tokenizer.from_str(json.dumps(content))
        self._whole = whole
        # Streams repeat themselves, row-wise packing most of all.
        self._encode = functools.lru_cache(maxsize=1 << 16)(self._encode_anew)
        self.size = max(whole.get_vocab(with_added_tokens=True).values()) + 1
        self.pad = self.special("<|endoftext|>")
        self.thinks = all(name in self._specials for name in THINK_TOKENS)
        self.chat_template = chat_template

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokenizer:
        """Trains a byte-level BPE vocabulary of at most `size` ids; deterministic in the order of `texts`.

        Raises:
          ValueError: when `size` leaves no room beyond the 256 bytes and the special tokens.
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

        A directory without tokenizer.json, such as one of vocab.json and merges.txt, is read by transformers.

        Raises:
          FileNotFoundError: naming the path.
          ValueError: for a file that cannot be used, naming it.
        """
        path = epath.Path(path)
        if path.suffix == ".gguf":
            from prism_jax.prompting.gguf_tokenizer import read_gguf_tokenizer  # an extra reads such files

            read = read_gguf_tokenizer(path)
            return cls(read.definition, read.chat_template)
        if not (path / "tokenizer.json").exists() and any((path / name).is_file() for name in _OLDER):
            return cls(*_read_older(path))
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file, expected a tokenizer.json or a directory that holds one")
        template = _chat_template(path.parent)
        try:
            return cls(path.read_bytes().decode("utf-8"), template)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, path: epath.PathLike) -> None:
        """Writes the `tokenizer.json` at `path`, whole or not at all, and before it the chat template beside it."""
        path = epath.Path(path)
        if self.chat_template is not None:
            write_text(path.parent / CHAT_TEMPLATE, self.chat_template)
        write_text(path, self._definition)

    @property
    def definition(self) -> str:
        """The `tokenizer.json` that says all of it: equal definitions are equal tokenizers."""
        return self._definition

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; never a special one, whatever the text says."""
        return list(self._encode(text))

    def _encode_anew(self, text: str) -> tuple[int, ...]:
        return tuple(self._text.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens shown."""
        return self._whole.decode(list(ids), skip_special_tokens=False)

    def special(self, name: str) -> int:
        """Id of a special token.

        Raises:
          KeyError: for a name that the vocabulary doesn't have.
        """
        return self._specials[name]

    def only(self, text: str) -> int:
        """Id of a text that is a single token.

        Raises:
          ValueError: when it is several.
        """
        ids = self.encode(text)
        if len(ids) != 1:
            raise ValueError(
                f"tokenizer: found {len(ids)} tokens for {text!r}, expected one: answers are single tokens"
            )
        return ids[0]


def _read_older(folder: epath.Path) -> tuple[str, str | None]:
    """The definition of a tokenizer that lies in other files than tokenizer.json, and the chat template."""
    import transformers  # takes seconds

    try:
        read = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        return read.backend_tokenizer.to_str(), _chat_template(folder)
    except Exception as error:  # the library has no type of its own
        reason = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise ValueError(
            f"{folder}: found no tokenizer.json, and files that transformers cannot read ({reason}), expected either"
        ) from error


def _chat_template(folder: epath.Path) -> str | None:
    """The chat template in a model's folder: a file of its own, or a key of tokenizer_config.json."""
    if (folder / CHAT_TEMPLATE).is_file():
        return (folder / CHAT_TEMPLATE).read_text()
    config = folder / "tokenizer_config.json"
    if not config.is_file():
        return None
    content = parse_json(config.read_bytes(), str(config))
    if not isinstance(content, dict):
        raise ValueError(f"{config}: found {reprlib.repr(content)}, expected an object with keys")
    found = content.get("chat_template")
    return found if isinstance(found, str) else None
