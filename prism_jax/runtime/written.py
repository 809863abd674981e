"""What stands in fields that people and other programs write: times, missing values, and names of people."""

from __future__ import annotations

import unicodedata
from typing import Annotated

Label = Annotated[float, "true or false"]
"""A label in memory, which a file may also write as true or false."""
MOST_SECONDS = 1e11
"""Largest time in seconds, on both sides of 0: the year 5138. What is larger counts milliseconds, or is a date."""
SECONDS = f"a number of seconds of at most {MOST_SECONDS:g} from 0 (milliseconds / 1000, no date as digits)"
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "<na>", "nat", "nil", "undefined", "-", "--", "\\n")
"""Texts in small letters that stand for a missing value; a CSV file has no other sign for it."""
_UNSEEN = dict.fromkeys(map(ord, "\u200b\u2060\ufeff\u00ad"))
_ENDS = "\u200c\u200d" + "".join(filter(str.isspace, map(chr, range(0x3001))))
"""Blanks, and joiners of letters, which mean something between letters only."""


def tidy(text: str) -> str:
    """The text in NFC, without characters that nobody sees and without blanks at its ends."""
    return unicodedata.normalize("NFC", text.translate(_UNSEEN).strip(_ENDS))


def one_spelling(name: str) -> str:
    """The name of a person as `tidy` has it, and a whole number without the `.0` that programs append to it."""
    tidied = tidy(name)
    whole, point, rest = tidied.partition(".")
    return whole if point and rest and not rest.strip("0") and whole.isdecimal() else tidied


def look(name: str) -> str:
    """What names that look alike share: letters without case, width and blanks, numbers without leading zeros."""
    folded = "".join(unicodedata.normalize("NFKC", name).casefold().split())
    return folded.lstrip("0") or "0" if folded.isdecimal() else folded
