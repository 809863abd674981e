"""Removes credentials from texts that are printed or stored: URLs' user names and passwords, tokens and signatures."""

from __future__ import annotations

import re

HIDDEN = "***"
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
