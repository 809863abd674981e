"""Writes the tokenizer files of an exported model, which transformers and serving engines read without changes."""

from __future__ import annotations

from etils import epath

from prism_jax.prompting.tokenizer import CHAT_TEMPLATE, Tokenizer
from prism_jax.runtime.files import write_json, write_text

_TURN = "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
_OPENING = "{{- '<|im_start|>assistant\\n' -}}"
_NOT_THINKING = (
    "{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}"
)
TURN_END = "<|im_end|>"


def write_tokenizer(directory: epath.PathLike, tokenizer: Tokenizer, context: int) -> None:
    """Writes or replaces tokenizer.json, tokenizer_config.json and chat_template.jinja.

    Where the tokenizer has no chat template of its own, a ChatML template is written. The context is the maximum length
    of the input in tokens.
    """
    folder = epath.Path(directory)
    tokenizer.save(folder / "tokenizer.json")
    write_text(folder / CHAT_TEMPLATE, tokenizer.chat_template or _chat_ml(tokenizer.thinks))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": "<|endoftext|>",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
    }
    write_json(folder / "tokenizer_config.json", config)


def _chat_ml(thinks: bool) -> str:
    """A ChatML template that renders messages as `Template` does."""
    turns = "{%- for message in messages -%}" + _TURN + "{%- endfor -%}"
    opening = "{%- if add_generation_prompt -%}" + _OPENING + (_NOT_THINKING if thinks else "") + "{%- endif -%}"
    return turns + opening
