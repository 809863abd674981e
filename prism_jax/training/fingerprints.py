"""SHA-256 of what a run reads: the streams of each split, the tokenizer, the words of the prompt, the first weights.

A run keeps those of its streams, tokenizer and prompt in `fingerprints.json`. They are compared when it resumes and
when it is evaluated, so that other content under the same name is noticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from absl import logging

from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.runtime.files import read_object
from prism_jax.streams import Candidate, Event, Stream
from prism_jax.streams.jsonl import encode_stream
from prism_jax.streams.splits import Splits
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.prompting.template import Template
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.training.workdir import Workdir

_WHAT = {
    "train": "the training streams",
    "validation": "the validation streams",
    "calibration": "the calibration streams",
    "test": "the test streams",
    "tokenizer": "the tokenizer",
    "prompt": "the words of the prompt",
}
_TIMES = (0.0, 1.0, 90.0, 7_290.0, 300_000.0)  # seconds, minutes, hours and days between events


def of_run(splits: Splits, template: Template) -> dict[str, str]:
    """The fingerprints of a run by the keys of `fingerprints.json`."""
    streams = {name: of_streams(getattr(splits, name)) for name in ("train", "validation", "calibration", "test")}
    return streams | of_template(template)


def of_streams(streams: Iterable[Stream]) -> str:
    """The fingerprint of streams with all their texts, labels and times, in their order."""
    digest = hashlib.sha256()
    for stream in streams:
        digest.update(encode_stream(stream).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def of_template(template: Template) -> dict[str, str]:
    """The fingerprints of the tokenizer's definition, and of an example of every part of the prompt."""
    events = [Event(time=time, text="An event.") for time in _TIMES]
    slow = template.slow(dict.fromkeys(SLOW_FIELDS, "A text."))
    parts = [
        template.system(),
        *(template.event(event, before) for before, event in zip((None, *events), events, strict=False)),
        template.head(),
        template.opening(),
        *(ids for field in slow for ids in field),
        template.need(),
        *(template.leaf(Candidate(text=text)) for text in ("Offer this.", None)),
        *template.response("Of course."),
        [template.yes, template.no],
    ]
    return {"tokenizer": _of_text(template.tokenizer.definition), "prompt": _of_text(repr(parts))}


def check(workdir: Workdir, current: dict[str, str]) -> None:
    """Compares some fingerprints with those of the run, and raises ConfigError naming the first thing that differs.

    A run of an older version has none, which a warning says.
    """
    path = workdir.fingerprints
    if not path.exists():
        logging.warning("%s: no such file, as in runs of older versions: changed inputs are not detected", path)
        return
    expected = read_object(path, "prism_jax.train", ConfigError)
    for name in sorted(current, key=list(_WHAT).index):
        if current[name] != expected.get(name):
            place = workdir.tokenizer if name == "tokenizer" else workdir.path
            raise ConfigError(
                f"{place}: found {_WHAT[name]} changed ({current[name][:12]}), expected those of the run "
                f"({str(expected.get(name))[:12]} in {path})"
            )


def check_prompt(workdir: Workdir, template: Template) -> None:
    """Compares only the tokenizer and the prompt, as `check` does, where no streams are read."""
    check(workdir, of_template(template))


def check_tokenizer(workdir: Workdir) -> None:
    """Compares only the tokenizer, as `check` does, for a run that another run starts from."""
    check(workdir, {"tokenizer": _of_text(Tokenizer.load(workdir.tokenizer).definition)})


def check_start(start: str, digest: str, expected: str) -> None:
    """Compares the digest of what `training.start` names with `training.start_sha256`; ConfigError if they differ."""
    if digest != expected.lower():
        raise ConfigError(
            f"training.start_sha256: found {digest} for {start}, expected {expected}: these are other weights"
        )


def _of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
