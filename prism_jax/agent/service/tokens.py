"""Who may ask, and for what: bearer tokens, each of a tenant and with scopes."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import NamedTuple

from prism_jax.runtime.files import read_lines

TENANT = "default"
"""Who asks without a tenant."""
SCOPES = ("decide", "read", "people")
"""What a token may be for: decisions and outcomes; reading records and offers; people's data, links and deletion."""
_ROUTES = {
    **dict.fromkeys(("decisions", "systemone", "models", "decide", "outcomes"), "decide"),
    **dict.fromkeys(("records", "offers", "shadow"), "read"),
    "people": "people",
}
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Caller(NamedTuple):
    """Who asks."""

    name: str  # a hash of their token; empty where nobody needs one
    tenant: str
    scopes: frozenset[str] = frozenset(SCOPES)

    def lacks(self, method: str, path: str) -> str | None:
        """The scope that a request to a path below /v1 needs and this caller lacks; None where they may ask.

        Whatever is not known here needs every scope.
        """
        kind = path.split("/")[2]
        scope = ("decide" if method == "POST" else "people") if kind == "streams" else _ROUTES.get(kind, "all")
        return None if self.scopes >= ({*SCOPES} if scope == "all" else {scope}) else scope


class Tokens:
    """Bearer tokens, as their hashes alone, each of a tenant and with scopes."""

    def __init__(self, tokens: Sequence[str | tuple[str, ...]] = ()) -> None:
        """Keeps the hashes of tokens, or of a tenant, a token and perhaps its scopes; without any, everybody may ask.

        Scopes are names of `SCOPES` with commas, or `all`, as without any; ValueError for another one.
        """
        self._hashes: list[tuple[bytes, Caller]] = []
        for line in tokens:
            tenant, token, scopes = (TENANT, line, "all") if isinstance(line, str) else (*line, "all")[:3]
            named = frozenset(SCOPES if scopes == "all" else scopes.split(","))
            if not named <= {*SCOPES}:
                raise ValueError(f"found another scope, expected all, or of {', '.join(SCOPES)} some with commas")
            digest = _hash(token.encode())
            self._hashes.append((digest, Caller(digest.hex(), tenant, named)))

    @classmethod
    def read(cls, path: str) -> Tokens:
        """Reads a file with a token, or a tenant, a token and perhaps its scopes, a line.

        Raises:
          ValueError: for one without tokens, with a line of more words, a token twice, a tenant that is no name, a
            scope that is none, or text that is not UTF-8.
        """
        expected = "bearer tokens, one a line, or TENANT TOKEN, or TENANT TOKEN SCOPES"
        found: dict[str, tuple[str, ...]] = {}  # by their tokens
        for number, line in read_lines(path, ValueError, expected):
            try:
                words = line.decode("utf-8-sig" if number == 1 else "utf-8").split()
                if not words:
                    continue
                tenant, token, *scopes = (TENANT, *words) if len(words) == 1 else words
                if len(scopes) > 1:
                    raise ValueError(f"found {len(words)} words, expected {expected}")
                if {*token.split(",")} <= {*SCOPES, "all"}:  # TOKEN SCOPES, without a tenant
                    raise ValueError(f"found scopes where a token is, expected {expected}")
                if not _TENANT.fullmatch(tenant):
                    raise ValueError("found a tenant of other characters, expected 1 to 64 of a to z, 0 to 9, - and _")
                if token in found:
                    raise ValueError("found a token twice, expected each once: it says whose a request is")
                found[token] = (tenant, token, *scopes)
                cls([found[token]])
            except UnicodeDecodeError:
                raise ValueError(f"{path}:{number}: found text that is not UTF-8, expected {expected}") from None
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
        if not found:
            raise ValueError(f"{path}: found no token, expected {expected}")
        return cls([*found.values()])

    @property
    def tenants(self) -> list[str]:
        """The names of the tenants."""
        return sorted({caller.tenant for _, caller in self._hashes} or {TENANT})

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def caller(self, header: bytes) -> Caller | None:
        """Who asks, by the header Authorization; None where a token is needed and none of the right ones is there.

        Clients send letters beyond ASCII in UTF-8 or Latin-1.
        """
        if not self._hashes:
            return Caller("", TENANT)
        scheme, _, token = header.partition(b" ")
        sent = [_hash(token.strip()), _hash(token.strip().decode("latin-1").encode())]
        # All of them are compared, so that no time tells which.
        known = [who for digest, who in self._hashes if any([hmac.compare_digest(one, digest) for one in sent])]
        return known[0] if known and scheme.lower() == b"bearer" else None


def _hash(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
