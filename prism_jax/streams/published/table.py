"""The table of sources: what each is, the layout that is read, licence, address and reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from etils import epath

from prism_jax.streams import proactivebench_source
from prism_jax.streams.published import contextagent
from prism_jax.streams.published.content import Published


@dataclasses.dataclass(frozen=True)
class Source:
    """A line of the table."""

    what: str  # what the data are, in words
    layout: str  # what is expected in the folder or file that a user names
    licence: str  # of the data, as their publisher states it
    address: str  # where they are published, or described
    # Reads a folder or a file, and settings of its own by name, such as `medium`. Raises ValueError or OSError in one
    # line that names the place, what was found and what was expected.
    read: Callable[..., Published]


def _proactivebench(source: epath.PathLike, **settings: Any) -> Published:
    """`prism_jax.streams.proactivebench.load` of a folder, with its settings `need` and `candidates`."""
    from prism_jax.streams.proactivebench import load  # imports TFDS, which takes seconds

    if not epath.Path(source).is_dir():
        raise FileNotFoundError(f"{source}: found no such folder, expected {proactivebench_source.LAYOUT}")
    return Published(load(source, **settings))


SOURCES = {
    "proactivebench": Source(
        "ProactiveBench: people's votes on offers and on silence, in streams of events",
        proactivebench_source.LAYOUT,
        "Apache-2.0",
        "https://github.com/thunlp/ProactiveAgent",
        _proactivebench,
    ),
    "contextagent": Source(
        "ContextAgentBench: single moments, and whether an assistant should speak",
        contextagent.LAYOUT,
        "none seen: to use, not to pass on",
        "https://github.com/openaiotlab/ContextAgent",
        contextagent.read_contextagent,
    ),
}
"""The sources by name."""


def read(name: str, source: epath.PathLike, **settings: Any) -> Published:
    """The content of a source.

    Args:
      name: A key of `SOURCES`.
      source: The folder, or for some the file, that holds it; nothing is downloaded.
      settings: The reader's own, by name, such as `medium="true"` of `contextagent`.

    Raises:
      ValueError, OSError: in one line, for an unknown name, another layout, or content that cannot be used.
    """
    if name not in SOURCES:
        raise ValueError(f"source: found {name!r}, expected one of {', '.join(SOURCES)}")
    return SOURCES[name].read(source, **settings)
