"""The HTTP client under the SDK: it sends texts and keys to one origin only, and reads bodies within bounds.

This module needs the extra `remote`.
"""

from __future__ import annotations

import functools
import ssl
import zlib
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from prism_jax.remote.failures import RedirectError, UnreadableError

LARGEST = 4 * 2**20
"""Most bytes of a completion's body, as it arrives and decompressed; a long one of 100,000 tokens takes one million."""
LARGEST_ERROR = 64 * 2**10
"""Bytes of an error's body that are kept; what follows is not read."""
REDIRECTS = 5
ENCODINGS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
"""What a body may be compressed in, once, and the format's number in zlib."""


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """Follows redirects within an origin only, and returns responses whose bodies were read within the bounds."""

    def __init__(self) -> None:
        # A connection that idles is kept until the server closes it: over a new one, another server may answer.
        limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=None)
        super().__init__(headers={"Accept-Encoding": "gzip, deflate"}, verify=_authorities(), limits=limits)
        self.opened = 0  # number of connections so far

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Sends a request and reads the response.

        Raises:
          RedirectError: if the server redirects to another origin, or again and again.
          UnreadableError: if the body is too large or not encoded as its header says.
        """
        for _ in range(REDIRECTS + 1):
            request.extensions["trace"] = self._note
            response = await super().send(request, stream=True, **(options | {"follow_redirects": False}))
            try:
                if response.next_request is None:
                    return await _read(response)
            finally:
                await response.aclose()
            origin, target = _origin(request.url), _origin(response.next_request.url)
            if origin != target:
                raise RedirectError(
                    f"{origin} redirects to {target}, where nothing was sent; base_url must name the host"
                )
            request = response.next_request
        raise RedirectError(f"{origin} redirects more than {REDIRECTS} times")

    async def _note(self, event: str, _: Mapping[str, Any]) -> None:
        self.opened += event == "connection.connect_tcp.complete"


@functools.cache
def _authorities() -> ssl.SSLContext:
    """The certificate authorities, which take longer to read than a request takes."""
    return httpx2.create_ssl_context()


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def _read(response: httpx2.Response) -> httpx2.Response:
    """The response with its body, decoded; the body of an error is cut at its bound."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in (*ENCODINGS, "identity", ""):
        raise UnreadableError(f"the response is encoded as {encoding!r}, expected gzip, deflate or nothing")
    limit = LARGEST_ERROR if response.is_error else LARGEST
    inflate = zlib.decompressobj(ENCODINGS[encoding]) if encoding in ENCODINGS else None
    content, arrived = bytearray(), 0
    async for part in response.aiter_raw():
        arrived += len(part)
        try:
            content += inflate.decompress(part, limit + 1 - len(content)) if inflate else part
        except zlib.error as error:
            raise UnreadableError(f"the response is no {encoding} ({error})") from None
        if max(arrived, len(content)) > limit:
            if not response.is_error:
                raise UnreadableError(f"the response has more than {limit:,} bytes, which no answer takes")
            break
    body_headers = (b"content-encoding", b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in body_headers]
    return httpx2.Response(
        response.status_code, headers=headers, content=bytes(content[:limit]), request=response.request
    )
