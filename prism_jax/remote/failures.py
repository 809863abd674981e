"""What can go wrong with one attempt, and what follows from it."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from typing import Any

from prism_jax.runtime.personal_data import without_personal_data
from prism_jax.runtime.shown_text import visible, without_credentials

LONGEST = 300
LONGEST_WAIT = 24 * 3600.0
"""Most seconds that a server can make a client wait, however patient that is."""
PART = 6
"""Characters of a key that are too many to show."""
NOT_BILLED = {429, 500, 503}
"""Statuses by which a server says that it has not answered; others above 500 come from gateways, which cannot know."""


class EndpointError(RuntimeError):
    """The endpoint refuses every request: an unknown key, an unknown model, no money left on the account."""


class TransientError(Exception):
    """An attempt failed in a way that may pass; `words` say what happened, without secrets.

    `after` is the number of seconds after which the server asked to be tried again; None if it did not say. `billed`
    says whether the attempt may have been billed, and `garbled` whether the server's answer is no completion.
    """

    def __init__(self, words: str, after: float | None = None, billed: bool = False, garbled: bool = False) -> None:
        super().__init__(words)
        self.words, self.after, self.billed, self.garbled = words, after, billed, garbled


class RejectedError(Exception):
    """The endpoint rejects this one request, and would again."""


class RedirectError(Exception):
    """The endpoint redirects to where no text may be sent."""


class UnreadableError(Exception):
    """The body of a response is too large, or not what its headers say."""


def secret_free(text: str, key: str) -> str:
    """A text of the SDK or the server, in one line, without the API key, other credentials or personal data."""
    words = ("***" if _quotes(word, key) else word for word in text.split())
    text = visible(without_personal_data(without_credentials(" ".join(words))))
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _quotes(word: str, key: str) -> bool:
    """Whether a word holds the key, or a part of it; servers quote keys with their middle left out."""
    return bool(key) and any(key[i : i + PART] in word for i in range(max(1, len(key) - PART + 1)))


def of_exchange(error: Exception, key: str) -> Exception:
    """The failure that an exception of the `openai` SDK, or of what is under it, stands for.

    The text of the exception may quote the API key, which is removed.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
        message = secret_free(str(body.get("message") or error.message), key)
        if error.status_code == 401 and not key:
            where = "the NAME of the environment variable that has it, as --key=NAME or as `key` of the endpoint"
            return EndpointError(f"HTTP 401, it wants an API key and was sent none, expected {where}")
        return _of_status(error.status_code, error.response.headers, body.get("code"), message)
    if isinstance(error, openai.APIConnectionError):
        cause = type(error.__cause__).__name__
        sent = cause not in ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")
        return TransientError(f"{secret_free(error.message, key)} ({cause})", billed=sent)
    if isinstance(error, RedirectError):
        return RejectedError(secret_free(str(error), key))
    words = str(error) if isinstance(error, UnreadableError) else f"{type(error).__name__}: {error}"
    return TransientError(secret_free(words, key), billed=True, garbled=True)


def _of_status(status: int, headers: Mapping[str, str], code: object, message: str) -> Exception:
    """The failure that an HTTP status stands for."""
    if status == 401:
        return EndpointError("HTTP 401, it refuses the API key")
    words = f"HTTP {status}: {message}"
    if status in (402, 404) or code == "insufficient_quota":
        return EndpointError(words)
    if status in (408, 409, 429) or status >= 500:
        return TransientError(words, after=retry_after(headers), billed=status >= 500 and status not in NOT_BILLED)
    return RejectedError(words)


def retry_after(headers: Mapping[str, Any]) -> float | None:
    """Seconds that a server asks to wait, a day at most: `retry-after-ms`, or `Retry-After` in seconds or as a date."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = _seconds_until(value)
        if not math.isnan(seconds):
            return min(max(0.0, seconds), LONGEST_WAIT)
    return None


def _seconds_until(date: str) -> float:
    """Seconds from now to an HTTP date; NaN if it is none."""
    try:
        fields = email.utils.parsedate_tz(date)
        return email.utils.mktime_tz(fields) - time.time() if fields else math.nan
    except (ValueError, OverflowError):  # such as a year that no calendar has
        return math.nan
