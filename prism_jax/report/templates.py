"""Loads this folder's jinja2 templates.

All text is escaped, characters that act unseen are shown by their escapes (`prism_jax.runtime.shown_text`), and an
undefined name in a template is an error.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import jinja2

from prism_jax.runtime.shown_text import visible


def load_template(name: str) -> jinja2.Template:
    """Loads a template of this folder by its file name.

    Raises:
      jinja2.TemplateNotFound: if the folder has no such file.
    """
    return _environment().get_template(name)


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _visible(value: Any) -> Any:
    """Text from outside with its unseen characters shown; the output of macros is safe already."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
