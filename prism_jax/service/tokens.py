"""Who may ask: bearer tokens, each of a tenant."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import NamedTuple

from prism_jax.runtime.files import read_lines

TENANT = "default"
"""Who asks without a tenant."""
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Caller(NamedTuple):
    """Who asks."""

    name: str  # a hash of their token; empty where nobody needs one
    tenant: str


class Tokens:
    """Bearer tokens, as their hashes alone, each of a tenant."""

    def __init__(self, tokens: Sequence[str | tuple[str, str]] = ()) -> None:
        """Keeps the hashes of tokens, or of pairs of a tenant and a token; without any, everybody may ask."""
        pairs = [(TENANT, token) if isinstance(token, str) else token for token in tokens]
        self._hashes = [(tenant, _hash(token.encode())) for tenant, token in pairs]

    @classmethod
    def read(cls, path: str) -> Tokens:
        """Reads a file with a token, or a tenant and a token, a line.

        Raises:
          ValueError: for one without tokens, with a line of more words, a token twice, a tenant that is no name, or
            text that is not UTF-8.
        """
        expected = "bearer tokens, one a line, or TENANT TOKEN"
        lines = []
        for number, line in read_lines(path, ValueError, expected):
            try:
                lines.append(line.decode("utf-8-sig" if number == 1 else "utf-8").split())
            except UnicodeDecodeError:
                raise ValueError(f"{path}:{number}: found text that is not UTF-8, expected {expected}") from None
        pairs = [(TENANT if len(words) == 1 else words[0], words[-1]) for words in lines if words]
        if not pairs or any(len(words) > 2 for words in lines):
            what = "a line of several words" if pairs else "no token"
            raise ValueError(f"{path}: found {what}, expected {expected}")
        for tenant, _ in pairs:
            if not _TENANT.fullmatch(tenant):
                raise ValueError(
                    f"{path}: found a tenant of other characters, expected 1 to 64 of a to z, 0 to 9, - and _"
                )
        if len({token for _, token in pairs}) < len(pairs):
            raise ValueError(f"{path}: found a token twice, expected each once: it says whose a request is")
        return cls(pairs)

    @property
    def tenants(self) -> list[str]:
        """The names of the tenants."""
        return sorted({tenant for tenant, _ in self._hashes} or {TENANT})

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def caller(self, header: bytes) -> Caller | None:
        """Who asks, by the header Authorization; None where a token is needed and none of the right ones is there.

        Clients send letters beyond ASCII in UTF-8 or Latin-1.
        """
        if not self._hashes:
            return Caller("", TENANT)
        scheme, _, token = header.partition(b" ")
        found = [_hash(token.strip()), _hash(token.strip().decode("latin-1").encode())]
        # All of them are compared, so that no time tells which.
        known = [pair for pair in self._hashes if any([hmac.compare_digest(one, pair[1]) for one in found])]
        return Caller(known[0][1].hex(), known[0][0]) if known and scheme.lower() == b"bearer" else None


def _hash(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
