"""Loads this folder's jinja2 templates, style sheet and script, and computes a page's content security policy.

Text is escaped and made visible by `prism_jax.runtime.shown_text`. A page allows the style sheet and script that it was
made with, by their hashes, and nothing else: no request, no other script, no style attribute.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import pathlib
from collections.abc import Sequence

import jinja2
import markupsafe

from prism_jax.runtime.shown_text import make_environment

FOLDER = pathlib.Path(__file__).parent


def load_template(name: str) -> jinja2.Template:
    """Loads a template of this folder by its file name."""
    return _environment().get_template(name)


def load_asset(name: str) -> markupsafe.Markup:
    """Reads a style sheet or script of this folder, to stand between the page's own tags as it is.

    A text that could end its element raises ValueError: a browser reads markup there before it reads the language.
    """
    text = (FOLDER / name).read_text(encoding="utf-8")
    if "</" in text or "<!--" in text:
        raise ValueError(f"{name}: found '</' or '<!--', expected neither: it would end the text's element")
    return markupsafe.Markup(text)


def content_policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """The content security policy that allows exactly the text of these inline `<style>` and `<script>` elements.

    Data blocks need no permission.
    """
    directives = ["default-src 'none'", "base-uri 'none'", "form-action 'none'"]
    for name, texts in (("style-src", styles), ("script-src", scripts)):
        if texts:
            directives.append(" ".join([name, *map(_source, texts)]))
    return "; ".join(directives)


def _source(text: str) -> str:
    """The hash of an element's text, as a policy names it."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = make_environment(FOLDER)
    environment.globals |= {"asset": load_asset, "policy": content_policy}
    return environment
