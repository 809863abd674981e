"""ContextAgentBench: single moments of wearers of a camera and a microphone, and whether an assistant should speak.

A row of the publisher's files is one moment, so it becomes one stream with one event and one step. The event's text is
what the publisher gives to a model: the context, what was seen and heard, what the phone told, and traits of the
person. Thoughts, plans, tools, actions and responses are a reference solution, and never read.

The label says whether speaking is right, not whether help was needed. It is the acceptance of the constant offer, and
need has no label, so that a gate on p_accept alone is evaluated.

The files name no person, and traits are given at few rows and shared by hardly two: the unit of folds and intervals is
the row. The rows of the two split files are numbered as in the file of all rows.
"""

from __future__ import annotations

import collections
import json
import reprlib
from typing import Any

from etils import epath

from prism_jax.runtime.files import parse_json, read_bounded
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.published.content import Published
from prism_jax.streams.types import Candidate, Event, Step, Stream

FOLDER = "data/cab"
FILES = {"cab_train": "train", "cab_test": "test", "cab": None}
"""The publisher's files, without .json, and the split of their rows; the last one has the rows of both."""
INPUTS = ("Context information", "Vision", "Audio", "Mobile api data", "Personas")
"""The parts of a row that are its input, in the order of the text."""
LABEL, CATEGORY = "Proactive index", "Category"
LAYOUT = f"{', '.join(f'{FOLDER}/{name}.json' for name in FILES)}, at least one of them"

MEDIUM = ("unlabelled", "true", "false")
"""What the label `medium` can become."""


def read_contextagent(source: epath.PathLike, medium: str = "unlabelled") -> Published:
    """Reads the files of `FILES` that are in a folder with the publisher's layout, whatever the number of their rows.

    The id of a stream is the file's name and the key of the row; `medium` is the label of rows of medium need. A row
    without input or with another label is dropped, and so is a row of the file of all rows whose key is in a file of
    one split.

    Raises:
      FileNotFoundError: naming the folder, if it has none of the files.
      StreamError: naming file, row and key, for another layout, or a row that is in both splits.
    """
    if medium not in MEDIUM:
        raise ValueError(f"medium: found {medium!r}, expected one of {', '.join(MEDIUM)}")
    folder = epath.Path(source) / FOLDER
    files = {name: path for name in FILES if (path := folder / f"{name}.json").exists()}
    if not files:
        raise FileNotFoundError(f"{source}: found none of ContextAgentBench's files, expected {LAYOUT}")
    streams, dropped = [], collections.Counter[str]()
    split: dict[str, str] = {}
    seen: dict[str, tuple[str, Any]] = {}
    for name, path in files.items():
        for key, row in _rows(path):
            other, same = seen.setdefault(key, (name, row))
            if other != name and FILES[name]:
                raise StreamError(f"{path}: {key}: found it in {other}.json too, expected it in one split")
            if other != name:
                dropped[f"{name}.json: in {other}.json{'' if same == row else ', with another content'}"] += 1
            elif isinstance(stream := _stream(f"{name}:{key}", row, f"{path}: {key}", medium), str):
                dropped[f"{name}.json: {stream}"] += 1
            else:
                streams.append(stream)
                split |= {stream.id: part} if (part := FILES[name]) else {}
    if not streams:
        raise StreamError(f"{folder}: found no row with input and label, expected some")
    return Published(sorted(streams, key=lambda stream: stream.id), split, dropped)


def _rows(path: epath.Path) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a file by their keys."""
    rows = parse_json(read_bounded(path, StreamError, expected="an object of rows"), str(path), StreamError)
    if not isinstance(rows, dict) or not rows:
        raise StreamError(f"{path}: found {reprlib.repr(rows)}, expected an object with a row for each key")
    for key, row in rows.items():
        if not isinstance(row, dict) or LABEL not in row or not set(INPUTS) & row.keys():
            found = ", ".join(row) if isinstance(row, dict) else reprlib.repr(row)
            raise StreamError(f"{path}: {key}: found {found}, expected {LABEL} and one of {', '.join(INPUTS)}")
    return list(rows.items())


def _stream(name: str, row: dict[str, Any], place: str, medium: str) -> Stream | str:
    """The stream of a row, or why it has none."""
    parts = {part: _words(row.get(part), f"{place}.{part}") for part in INPUTS}
    text = "\n".join(f"{part}: {words}" for part, words in parts.items() if words)
    if not text:
        return "no input"
    label = str(row[LABEL]).strip().lower()  # JSON's true and false, too
    label = medium if label == "medium" else label
    if label not in ("true", "false", "unlabelled"):
        return f"{LABEL} {label!r:.40}"
    offer, domain = Candidate(), _words(row.get(CATEGORY), f"{place}.{CATEGORY}")
    if label != "unlabelled":  # every moment was judged, not a selection of them
        offer = Candidate(y_accept=float(label == "true"), logged=True, propensity=1.0)
    try:
        return Stream(
            id=name,
            domain=domain or "unknown",
            events=(Event(time=0.0, text=text),),
            steps=(Step(event=0, candidates=(offer,)),),
        )
    except ValueError as error:
        raise StreamError(f"{place}: {error}") from error


def _words(value: Any, place: str) -> str:
    """A part of a row as text: a text or an object, or a list of them; without words, none."""
    if not isinstance(value, str | dict | list | None):
        raise StreamError(f"{place}: found {reprlib.repr(value)}, expected text, or a list of texts or objects")
    entries = value if isinstance(value, list) else [value or ""]
    texts = [entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False) for entry in entries]
    return "; ".join(text.strip() for text in texts if text.strip())
