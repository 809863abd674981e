"""What goes between the server and a person's browser: pages under a strict policy, and forms of these pages alone."""

from __future__ import annotations

import functools
import pathlib
import sys
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

import fastapi
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prism_jax.agent.service.http import ApiError
from prism_jax.agent.state.partition import StateError
from prism_jax.runtime.shown_text import STYLE, make_environment

Page = Callable[[fastapi.Request], Awaitable[Response]]

FOLDER = pathlib.Path(__file__).parent / "me"
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",  # the address of a link has its secret
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
ASSETS = {
    "page.css": "text/css",
    "person.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
MOST_FIELDS = 20
"""Most fields of a form."""
_PROBLEMS = {
    401: ("You are not signed in", "Ask for a link in the app that makes you offers; it leads here."),
    403: ("That did not come from this page", "Nothing was changed. Load the page again, and repeat it there."),
    429: ("Too much is going on", "Nothing was changed. Try again in a moment."),
    500: ("Something went wrong", "Nobody knows whether anything was changed. Load the page again to see."),
    503: ("That cannot be done now", "Nothing was changed. Try again in a moment."),
    504: ("Something went wrong", "Nobody knows whether anything was changed. Load the page again to see."),
}


_templates = functools.cache(functools.partial(make_environment, FOLDER))


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page of a template; all text is escaped, and what acts unseen is shown by its escape."""
    text = _templates().get_template(template).render(**values)
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def message(status: int, title: str, words: str) -> HTMLResponse:
    """A page that says one thing."""
    return render("message.html.jinja", status, title=title, words=words)


def answered(page: Page) -> Page:
    """A page with errors that a person can read."""

    async def answer(request: fastapi.Request) -> Response:
        try:
            found = await page(request)
        except ApiError as error:
            return message(error.status, *_PROBLEMS.get(error.status, _PROBLEMS[500]))
        except StateError as error:
            print(error, file=sys.stderr, flush=True)
            return message(503, *_PROBLEMS[503])
        except Exception as error:  # whose words may name somebody
            print(f"{type(error).__name__} in a page", file=sys.stderr, flush=True)
            return message(500, *_PROBLEMS[500])
        return found

    return answer


class Headers:
    """Gives every answer under /me the headers of the pages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in names]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        is_ours = scope["type"] == "http" and scope["path"].startswith("/me")
        await self._app(scope, receive, sent if is_ours else send)


def asset(name: str) -> Page:
    """Gives a file of the pages, one of `ASSETS`."""
    path = STYLE if name == STYLE.name else FOLDER / name

    async def answer(_: fastapi.Request) -> Response:
        return FileResponse(path, media_type=ASSETS[name])

    return answered(answer)


def to(place: str) -> RedirectResponse:
    """Leads to a page after a change, so that to load it again changes nothing."""
    return RedirectResponse(place, 303)


async def fields_of(request: fastapi.Request) -> dict[str, str]:
    """The fields of a form; ApiError 403 for a body that is none, or from another site.

    A browser says where a form is from. `Origin` alone counts where it says nothing else, and is null where, as here, a
    page refers nowhere.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own = f"{request.url.scheme}://{request.url.netloc}"
    if origin not in (None, "null", own) or (site != "same-origin" if site is not None else origin != own):
        raise ApiError(403, "origin: found another site, expected this one")
    try:
        text = (await request.body()).decode("ascii")
        pairs = urllib.parse.parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise ApiError(403, "body: found no form, expected one") from None
    return {name: values[-1] for name, values in pairs.items()}
