"""Names in the address of a request, which is divided at its slashes before it is decoded: names may have slashes."""

from __future__ import annotations

import re
import urllib.parse

from starlette.convertors import Convertor, register_url_convertor

_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def decoded(text: bytes) -> str:
    """A part of an address; ValueError for what is not UTF-8, percent-encoded."""
    try:
        if _NO_ESCAPE.search(text):
            raise ValueError
        return urllib.parse.unquote_to_bytes(text).decode()
    except ValueError:
        raise ValueError(f"address: found {text!r:.80}, expected percent-encoded UTF-8 (%25 for %)") from None


def route_path(raw: bytes) -> str:
    """The path by which a request finds its route, of which each part is encoded in one way; ValueError as above."""
    return "/".join(urllib.parse.quote(decoded(part), safe="") for part in raw.split(b"/"))


class _Name(Convertor[str]):
    """One part of `route_path`, as the name that it stands for."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return urllib.parse.unquote(value)

    def to_string(self, value: str) -> str:
        return urllib.parse.quote(value, safe="")


register_url_convertor("name", _Name())
