"""Text from outside, made safe to show on a terminal and in a page."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and newline: a terminal obeys some of them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that turn the direction of the text around them
    "\u2028\u2029\ufeff\ud800-\udfff]"  # line separators, the byte order mark, halves of surrogate pairs
)


def visible(text: str) -> str:
    r"""Replaces every character that acts without being seen with its escape, such as `\x1b` or `\u202e`.

    Tabs and newlines stay, and so do letters of every script; right-to-left text needs no mark to be shown right.
    """
    return _HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)
