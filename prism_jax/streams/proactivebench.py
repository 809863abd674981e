"""ProactiveBench (thunlp/ProactiveAgent): human judgements of offers and of silence, as a TFDS dataset and as streams.

The dataset needs no TensorFlow: it is written as array records and read as a random-access data source. Its only split,
"streams", has one example per stream; `prism_jax.streams.splits` divides whole streams into train and test. An example
consists of flat tables that refer to each other by row number, because nested ragged features would need TensorFlow.
Times are stored as text, as in the source: a number would become float32, which resolves seconds since the epoch only
to about two minutes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from etils import epath

from prism_jax.streams import proactivebench_source
from prism_jax.streams.proactivebench_source import Need
from prism_jax.streams.times import to_seconds
from prism_jax.streams.types import Candidate, Event, Step, Stream

Candidates = Literal["listed", "constant"]

SPLIT = "streams"
# Commit of the reward data and the test streams, fixed so that a version of the dataset always has the same data.
COMMIT = "50940be8cdf76f3149e780a2fa8768b0b5d135b1"
ARCHIVE = f"https://github.com/thunlp/ProactiveAgent/archive/{COMMIT}.zip"

_DESCRIPTION = """\
Streams of user events from ProactiveBench with 2 or 3 annotators' raw votes at each step on up to five offers and on \
silence. Row numbers start at 0; votes are words of 1 (true) and 0."""
_CITATION = """\
@article{lu2024proactive,
  title={Proactive Agent: Shifting LLM Agents from Reactive Responses to Active Assistance},
  author={Lu, Yaxi and Yang, Shenzhi and Qian, Cheng and Chen, Guirong and Luo, Qinyu and Wu, Yesai and others},
  journal={arXiv preprint arXiv:2410.12361},
  year={2024}
}"""


@dataclasses.dataclass(eq=False, kw_only=True, repr=False)
class SourceConfig(tfds.core.BuilderConfig):
    """A source folder; its name is a digest of the content, so that changed files never come from an older cache."""

    source: str

    def __repr__(self) -> str:
        return f"{self.source} (content {self.name})"


class ProactiveBench(tfds.core.GeneratorBasedBuilder):
    """TFDS builder; `ProactiveBench(source=DIR)` reads a folder, `ProactiveBench()` downloads the official archive.

    Features of an example, in addition to `id` and `domain`:
      events: `time` and `text` of each event.
      steps: `event` (row of the newest event), need by each definition, `silence_votes` (1 = the annotator ticked no
        offer; empty where no verdict on silence was recorded).
      candidates: `step` (row), `text`, `valid` (whether a majority accepted it), `votes` (1 = accepted).
    """

    VERSION = tfds.core.Version("2.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {
        "1.0.0": "First version.",
        "2.0.0": "The offers of a step are shuffled; their order in the source tells their labels.",
    }
    # Given here because TFDS would need importlib_resources to find it, a package that it does not install.
    code_path = epath.Path(__file__)

    def __init__(self, *, source: epath.PathLike | None = None, file_format: str = "array_record", **kwargs: Any):
        """Creates the builder; data is prepared later, by `download_and_prepare`.

        A source of None downloads the archive of `COMMIT`. The format `array_record` can be read without TensorFlow.
        """
        if source is not None:
            content = proactivebench_source.digest(source)
            kwargs["config"] = SourceConfig(name=content[:16], source=str(source))
        super().__init__(file_format=file_format, **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        text, number, flag = tfds.features.Text(), tfds.features.Scalar(np.int32), tfds.features.Scalar(np.bool_)
        features = {
            "id": text,
            "domain": text,
            "events": tfds.features.Sequence({"time": text, "text": text}),
            "steps": tfds.features.Sequence(
                {
                    "event": number,
                    "need_strict": flag,
                    "need_majority": flag,
                    "need_any_valid": flag,
                    "silence_votes": text,
                }
            ),
            "candidates": tfds.features.Sequence({"step": number, "text": text, "valid": flag, "votes": text}),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description=_DESCRIPTION,
            features=tfds.features.FeaturesDict(features),
            homepage="https://github.com/thunlp/ProactiveAgent",
            citation=_CITATION,
            license="Apache-2.0",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        if isinstance(self.builder_config, SourceConfig):
            return {SPLIT: self._generate_examples(self.builder_config.source)}
        archive = epath.Path(dl_manager.download_and_extract(ARCHIVE))
        return {SPLIT: self._generate_examples(archive / f"ProactiveAgent-{COMMIT}")}

    def _generate_examples(self, source: epath.PathLike) -> Iterator[tuple[str, dict[str, Any]]]:
        for record in proactivebench_source.read_source(source):
            yield record["id"], record


def load(
    source: epath.PathLike | None,
    data_dir: epath.PathLike | None = None,
    *,
    need: Need = "strict",
    candidates: Candidates = "listed",
) -> list[Stream]:
    """Loads ProactiveBench's judged streams, prepared once per content of the source and then read from the cache.

    Streams are sorted by id. All judged offers count as made: they are logged with propensity 1. An event whose time
    stamp is earlier than that of an event before it gets the time of that event, because the order is what the
    annotators saw; a warning gives the number of such events and the largest change.

    The source is a folder with the layout of the repository; None downloads the official archive (a fixed commit). The
    cache is the TFDS data folder `data_dir`, or else the environment's TFDS_DATA_DIR or ~/tensorflow_datasets.

    Need is `strict` (the official one): at least one offer was ticked by every annotator; `majority`: more
    than half of the annotators ticked an offer; or `any_valid`: a majority accepted at least one offer. `listed` gives
    one candidate per judged offer; `constant` one per step, "an offer", accepted if any listed offer is valid. In both
    cases a step without judged offers has the constant one, without a label.

    Raises:
      FileNotFoundError: naming the folder or file of `source` that is missing.
      StreamError: naming file, line and field of malformed data.
    """
    for name, value, choices in (("need", need, get_args(Need)), ("candidates", candidates, get_args(Candidates))):
        if value not in choices:
            raise ValueError(f"{name}: found {value!r}, expected one of {', '.join(choices)}")
    builder = ProactiveBench(source=source, data_dir=data_dir)
    builder.download_and_prepare()
    examples = sorted(builder.as_data_source(split=SPLIT), key=lambda example: example["id"])
    streams = [_to_stream(example, need, candidates) for example in examples]
    _warn_of_raised_times(examples, streams)
    return streams


def _to_stream(example: Mapping[str, Any], need: Need, candidates: Candidates) -> Stream:
    offers: dict[int, list[Candidate]] = {}
    for step, text, valid, votes in _rows(example["candidates"], "step", "text", "valid", "votes"):
        candidate = Candidate(text=_text(text), y_accept=float(valid), votes=_votes(votes), logged=True, propensity=1.0)
        offers.setdefault(int(step), []).append(candidate)
    times = itertools.accumulate(_seconds(example), max)  # no event happens before the one that precedes it
    return Stream(
        id=_text(example["id"]),
        domain=_text(example["domain"]),
        events=tuple(
            Event(time=time, text=_text(text), time_text=_text(stamp))
            for time, text, stamp in zip(times, example["events"]["text"], example["events"]["time"], strict=True)
        ),
        steps=tuple(
            Step(
                event=int(event),
                y_need=float(needed),
                votes=_votes(silence),
                candidates=_candidates(offers.get(row, []), candidates),
            )
            for row, (event, needed, silence) in enumerate(
                _rows(example["steps"], "event", f"need_{need}", "silence_votes")
            )
        ),
    )


def _candidates(offers: list[Candidate], candidates: Candidates) -> tuple[Candidate, ...]:
    if not offers:
        return (Candidate(),)
    if candidates == "listed":
        return tuple(offers)
    return (Candidate(y_accept=max(offer.y_accept or 0.0 for offer in offers), logged=True, propensity=1.0),)


def _rows(table: Mapping[str, Any], *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column] for column in columns), strict=True)


def _text(data: bytes) -> str:
    return data.decode("utf-8")


def _votes(data: bytes) -> tuple[bool, ...]:
    return tuple(vote == "1" for vote in _text(data))


def _seconds(example: Mapping[str, Any]) -> tuple[float, ...]:
    return to_seconds([_text(time) for time in example["events"]["time"]])


def _warn_of_raised_times(examples: list[Mapping[str, Any]], streams: list[Stream]) -> None:
    delays = {
        stream.id: [event.time - time for event, time in zip(stream.events, _seconds(example), strict=True)]
        for example, stream in zip(examples, streams, strict=True)
    }
    late_events = {name: [gap for gap in gaps if gap > 0] for name, gaps in delays.items() if any(gaps)}
    if late_events:
        logging.warning(
            "ProactiveBench: events stamped before an earlier one take its time: %d (%s), by up to %.0f s",
            sum(map(len, late_events.values())),
            ", ".join(late_events),
            max(gap for gaps in late_events.values() for gap in gaps),
        )
