"""ProactiveBench's own files as the streams of an experiment: training data in chat form, test events, votes."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from etils import epath

from prism_jax.labelling.teacher.labelling import with_steps
from prism_jax.proactivebench.prompted import checkout_traces
from prism_jax.streams import Stream, proactivebench
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.published.sharegpt import read_sharegpt
from prism_jax.streams.splits import Splits, with_validation
from prism_jax.streams.traces import trace_stream


def events_of(source: epath.PathLike) -> list[Stream]:
    """The test events of a checkout, with a step at each and no offers; errors are those of `checkout_traces`."""
    return [_unanswered(trace_stream(name, trace)) for name, trace in checkout_traces(source).items()]


def streams_of(
    source: epath.PathLike, agent_data: Mapping[str, Sequence[str]], calibration: float
) -> tuple[dict[str, list[Stream]], collections.Counter[str]]:
    """The streams of a checkout: `train`, `calibration` and `test` without any answer, `human` with votes.

    Beside them stands what was left out of the training data, by the reason.

    Args:
      source: Folder with the layout of the benchmark's repository.
      agent_data: Files of the training data in chat form (`prism_jax.streams.published.sharegpt`), by the domain of
        their streams.
      calibration: Share of these streams that calibrates, spread over their domains.

    Raises:
      FileNotFoundError, StreamError: naming the file, for data that cannot be used, or a stream in two of the files.
    """
    train: dict[str, Stream] = {}
    dropped = collections.Counter[str]()
    for domain, paths in agent_data.items():
        for path in paths:
            published = read_sharegpt(path)
            dropped += published.dropped
            for stream in published.streams:
                if stream.id in train:
                    raise StreamError(
                        f"{path}: found stream {stream.id} again, expected each in one file of agent data"
                    )
                train[stream.id] = dataclasses.replace(_unanswered(stream), domain=domain)
    test = events_of(source)
    events = {tuple(event.text for event in stream.events): stream.id for stream in test}
    for stream in train.values():
        if same := events.get(tuple(event.text for event in stream.events)):
            raise StreamError(
                f"{stream.id}: found the events of the test stream {same}, expected other streams to train"
            )
    splits = with_validation(Splits(tuple(train.values()), (), tuple(test)), calibration)
    human = proactivebench.load(source)
    return {"train": [*splits.train], "calibration": [*splits.validation], "test": test, "human": human}, dropped


def _unanswered(stream: Stream) -> Stream:
    """The events of a stream, with a step at each, and nothing that an assistant or a person said."""
    return with_steps(dataclasses.replace(without_answers(stream), steps=()))
