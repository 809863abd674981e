"""Streams from answers that exist already, without asking anybody: the other half of `python -m prism_jax.label`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from etils import epath

from prism_jax.streams import Stream
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.teacher.recorded import read_recorded
from prism_jax.teacher.sharegpt import read_sharegpt
from prism_jax.teacher.text_calibrator import read_text_calibrator

Layout = Literal["streams", "recorded", "sharegpt"]
"""Layout of the answers, as the flags of the main call it."""
_READERS = {"streams": read_streams, "recorded": read_recorded, "sharegpt": read_sharegpt}


class Imported(NamedTuple):
    """What was written."""

    streams: int
    steps: int
    offers: int  # number of offers with a text
    responses: int  # number of offers with a response
    need: int  # number of steps with a probability of need
    accept: int  # number of offers with a probability of acceptance

    def lines(self) -> tuple[str, ...]:
        """The numbers in words, for the terminal."""
        return (
            f"{self.streams:,} streams, {self.steps:,} steps, {self.offers:,} offers, {self.responses:,} responses",
            f"p_need at {self.need:,} steps, p_accept of {self.accept:,} offers",
        )


def import_streams(
    layout: Layout, source: epath.PathLike, output: epath.PathLike, text_calibrator: epath.PathLike | None = None
) -> Imported:
    """Reads answers, fills in the probabilities that their texts tell, and writes streams atomically.

    The source is a file, or for `recorded` a folder. Without a text calibrator, missing probabilities stay missing.

    Raises:
      ValueError, OSError: in one line, naming the place; nothing is written.
    """
    calibrator = None if text_calibrator is None else read_text_calibrator(text_calibrator)
    streams = _READERS[layout](source)
    if calibrator is not None:
        streams = calibrator.fill(streams)
    write_streams(output, streams)
    return _count(streams)


def _count(streams: list[Stream]) -> Imported:
    steps = [step for stream in streams for step in stream.steps]
    offers = [offer for step in steps for offer in step.candidates]
    return Imported(
        streams=len(streams),
        steps=len(steps),
        offers=sum(offer.text is not None for offer in offers),
        responses=sum(offer.response is not None for offer in offers),
        need=sum(step.teacher_need is not None for step in steps),
        accept=sum(offer.teacher_accept is not None for offer in offers),
    )
