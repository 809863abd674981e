"""Text made safe to show and to store: without credentials, and without characters that act unseen."""

from __future__ import annotations

import pathlib
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # who shows no page loads no jinja2
    import jinja2

HIDDEN = "***"
STYLE = pathlib.Path(__file__).parent / "page.css"
"""The style sheet of every page that a person fills in."""
# A password may hold any character, even a slash; a colon before a port begins none. Lengths are bounded so that
# hostile text takes linear time.
_USER = re.compile(
    r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]{0,31}://)"
    r"(?:[^/:\s?#'\"]{0,1024}:(?!\d+(?:/|$))[^\s'\"]{0,1024}|[^/\s?#'\"]{0,1024})@"
)
_SECRET = (
    r"(?:x-amz-|x-goog-)?(?:signature|credential|security-token)|awsaccesskeyid|googleaccessid|sig"
    r"|(?:[a-z0-9]+[_-])*(?:token|secret|password|passwd|apikey|key|auth|authorization|accesskey|secretkey)"
)
_QUERY = re.compile(rf"(?P<name>[?&;](?:{_SECRET})=)[^&;#\s'\"]*?(?=[:,.]*(?:[&;#\s'\"]|$))", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """Replaces credentials in the URLs of a text by `***`: what stands before the host's @, and secret query values.

    Query values count as secret by their name, such as `token`, `key`, `api_key`, `sig` or `X-Amz-Signature`.
    """
    return _QUERY.sub(rf"\g<name>{HIDDEN}", _USER.sub(rf"\g<scheme>{HIDDEN}@", text))


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


def make_environment(folder: pathlib.Path) -> jinja2.Environment:
    """Templates of a folder, in which all text is escaped and `visible`, and an undefined name is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _visible(value: Any) -> Any:
    """Text from outside with its unseen characters shown; the output of macros is safe already."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def shown_name(text: str) -> str:
    """A name that somebody else states, in one visible line of at most 80 characters."""
    return visible(" ".join(text.split()))[:80]


def bar_seconds() -> float:
    """Seconds between two states of a progress bar, each of which is a line where standard error is a file."""
    return 0.5 if sys.stderr.isatty() else 30.0
