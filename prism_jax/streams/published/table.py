"""The table of sources: what each is, the layout that is read, licence, address and reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from etils import epath

from prism_jax.streams import proactivebench_source
from prism_jax.streams.published import activitywatch, contextagent, knowu, recorded, sharegpt
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

    def __str__(self) -> str:
        """The line in words."""
        return f"{self.what}. Reads {self.layout}. Licence: {self.licence}. {self.address}"


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
    "knowu": Source(
        "KnowU-Bench: a month of phone use of made-up people, each with a twin that has noise among it, unlabelled",
        knowu.LAYOUT,
        "Apache-2.0",
        "https://github.com/ZJU-REAL/KnowU-Bench",
        knowu.read_knowu,
    ),
    "activitywatch": Source(
        "ActivityWatch: the windows of a machine of yours, unlabelled",
        activitywatch.LAYOUT,
        "yours",
        "https://docs.activitywatch.net",
        activitywatch.read_activitywatch,
    ),
    "sharegpt": Source(
        "Conversations of events and answers, as ProactiveBench's authors train on them",
        "a file in LLaMA-Factory's layout (JSON, or JSONL with a row per line)",
        "not published",
        "https://github.com/thunlp/ProactiveAgent",
        sharegpt.read_sharegpt,
    ),
    "recorded": Source(
        "Recorded answers of models on ProactiveBench's streams of events",
        "a folder of files STREAM.json, or of a folder of them per model (eval/traces_new of the repository)",
        "Apache-2.0",
        "https://github.com/thunlp/ProactiveAgent",
        recorded.read_recorded,
    ),
}
"""The sources by name."""
