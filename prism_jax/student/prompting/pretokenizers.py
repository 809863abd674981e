"""Pre-tokenizers: how text is split into pieces before byte-level BPE, for trained vocabularies and those from GGUF."""

from __future__ import annotations

import tokenizers
from tokenizers import pre_tokenizers

# Qwen's split: one digit per piece, letters with one preceding punctuation mark or space, punctuation with the newlines
# that follow it.
_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def gpt2() -> pre_tokenizers.PreTokenizer:
    """GPT-2's split, which is part of the library's byte-level encoding."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def smollm() -> pre_tokenizers.PreTokenizer:
    """GPT-2's split with one digit per piece."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def qwen() -> pre_tokenizers.PreTokenizer:
    """Qwen's split."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(_QWEN_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
