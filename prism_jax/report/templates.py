"""Loads this folder's jinja2 templates. All text is escaped, and an undefined name in a template is an error."""

from __future__ import annotations

import functools
import pathlib

import jinja2


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
        trim_blocks=True,
        lstrip_blocks=True,
    )
