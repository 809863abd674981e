"""Bodies of requests that are compressed, decoded within a bound: gzip, deflate, and zstd as typesafe-sdk sends it."""

from __future__ import annotations

import zlib
from typing import Any

import zstandard

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
