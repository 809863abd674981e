"""What of a request is encoded: names in its address, which may have slashes, and compressed bodies, within a bound.

An address is divided at its slashes before it is decoded. Bodies come in gzip, deflate, and zstd as typesafe-sdk sends
it.
"""

from __future__ import annotations

import re
import urllib.parse
import zlib
from typing import Any

import zstandard
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


ENCODINGS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
"""What zlib decodes, and the format's number there."""
WINDOW = 2**23
"""Largest window of zstd that is decoded, in bytes: what RFC 9659 allows for a body."""
SLICE = 32
"""Bytes of zstd that are decoded at once: a block of four can be 128 KiB long, so that these are a MiB at most."""


class EncodingError(ValueError):
    """A body in an encoding that nobody decodes here."""


def decoded_body(body: bytes, encoding: str, most: int) -> bytes:
    """A body that came in a Content-Encoding, at most one byte longer than `most`, so that a longer one shows.

    Raises:
      EncodingError: for an encoding that is not known, or several.
      ValueError: for a body that is not encoded so.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    try:
        if encoding == "zstd":
            decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()
            found, read = bytearray(), 0
            while read < len(body) and len(found) <= most and not decoder.eof:  # it has no bound of its own
                found += decoder.decompress(body[read : read + SLICE])
                read += SLICE
            return _checked(bytes(found[: most + 1]), decoder, most, body[read:])
        inflate = zlib.decompressobj(ENCODINGS[encoding])
        content = inflate.decompress(body, most + 1)
    except KeyError:
        raise EncodingError(f"found {encoding!r:.80}, expected zstd, gzip or deflate, once") from None
    except (zlib.error, zstandard.ZstdError) as error:
        raise ValueError(str(error)) from None
    return _checked(content, inflate, most)


def _checked(content: bytes, decoder: Any, most: int, unread: bytes = b"") -> bytes:
    """What a decoder has decoded; ValueError where a body that is within the bound does not end where it should."""
    if len(content) <= most and (not decoder.eof or decoder.unused_data or unread):
        raise ValueError("it ends too early, or more follows")
    return content
