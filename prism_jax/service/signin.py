"""Who a person is: a link that works once, and a session behind it, of which the store has hashes alone.

The text of either names the tenant and the partition beside its secret, so that the one file that knows it is found.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from etils import epath

from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.places import readable

LINK, SESSION = "link", "session"
LASTS = {LINK: 15 * 60.0, SESSION: 30 * 86400.0}
"""Seconds after which each ends."""
_TEXT = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})\.([0-9]{1,4})\.[A-Za-z0-9_-]{43}")
_OWNER = "SELECT person FROM signins WHERE hash = ? AND kind = ? AND until > ? AND until <= ?"
"""What would last far longer than any does was made by a clock that was ahead, and has ended."""


class Key(NamedTuple):
    """What a link or a cookie says."""

    text: str  # whole, with its secret of 256 bits
    tenant: str
    partition: int

    @property
    def hash(self) -> bytes:
        """What the store knows of it."""
        return hashlib.sha256(self.text.encode("ascii")).digest()

    @property
    def form_token(self) -> str:
        """What each form of the session sends along, which no other page can know."""
        return hmac.new(self.text.encode("ascii"), b"form", hashlib.sha256).hexdigest()

    def made(self, form_token: str) -> bool:
        """Whether a form is one of the session's."""
        return hmac.compare_digest(self.form_token.encode(), form_token.encode("utf-8", "surrogatepass"))


def new_key(tenant: str, partition: int) -> Key:
    """A key that nobody can guess."""
    return Key(f"{tenant}.{partition}.{secrets.token_urlsafe(32)}", tenant, partition)


def read_key(text: str, tenants: Collection[str]) -> Key | None:
    """The key of a text from outside; None for what is none, or of no such tenant."""
    found = _TEXT.fullmatch(text)
    return Key(text, found[1], int(found[2])) if found and found[1] in tenants else None


def owner(folder: epath.PathLike, key: Key, kind: str, now: float) -> str | None:
    """Whose a key is, by the tenant's folder; None where it has ended, or never was. StateError for an unread file."""
    return next((_person(ask, key, kind, now) for _, ask in readable(folder, numbers=(key.partition,))), None)


def issue(partition: Partition, key: Key, kind: str, person: str, now: float) -> float:
    """Keeps a new key, in a transaction of the caller; returns when it ends, in seconds since 1970."""
    until = now + LASTS[kind]
    partition.rows("DELETE FROM signins WHERE until <= ?", (now,))
    partition.rows("INSERT INTO signins VALUES (?, ?, ?, ?)", (key.hash, person, kind, until))
    return until


def owner_in(partition: Partition, key: Key, kind: str, now: float) -> str | None:
    """Whose a key is, in a transaction of the caller."""
    return _person(partition.rows, key, kind, now)


def end(partition: Partition, key: Key) -> None:
    """Ends a key, in a transaction of the caller."""
    partition.rows("DELETE FROM signins WHERE hash = ?", (key.hash,))


def end_all(partition: Partition, person: str) -> int:
    """Ends every key of a person, in a transaction of the caller; returns how many there were."""
    ((count,),) = partition.rows("SELECT count(*) FROM signins WHERE person = ?", (person,))
    partition.rows("DELETE FROM signins WHERE person = ?", (person,))
    return int(count)


def _person(ask: Callable[[str, Any], list[tuple[Any, ...]]], key: Key, kind: str, now: float) -> str | None:
    rows = ask(_OWNER, (key.hash, kind, now, now + 2 * LASTS[kind]))
    return rows[0][0] if rows else None
