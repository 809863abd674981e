"""How many tokens the slow pass would write at each step, which the burden prices (docs/maths.md, section 4)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from prism_jax.prompting.supervised import supervised_step
from prism_jax.prompting.template import Template
from prism_jax.streams import Step, Stream
from prism_jax.streams.edit import map_steps


def with_slow_tokens(streams: Sequence[Stream], template: Template) -> tuple[Stream, ...]:
    """The training streams, with slow branches drawn, with the tokens of the slow pass at each step on a fast branch.

    The signals of fast branches trigger the slow pass. It writes the texts of its fields; their names come from the
    template and cost no tokens. A step without a rationale gets the mean over the steps that have one, and without any
    rationale the number is 0 everywhere.

    Raises:
      ValueError: naming the stream and step, when a rationale lacks a field.
    """
    lengths = {
        (stream.id, step.event): _length(stream, number, step, template)
        for stream in streams
        for number, step in enumerate(stream.steps)
        if step.rationale is not None
    }
    mean = float(np.mean(list(lengths.values()))) if lengths else 0.0

    def priced(stream: Stream, step: Step) -> Step:
        own = supervised_step(step)
        return dataclasses.replace(own, slow_tokens=0.0 if own.slow else lengths.get((stream.id, step.event), mean))

    return tuple(map_steps(stream, functools.partial(priced, stream)) for stream in streams)


def _length(stream: Stream, number: int, step: Step, template: Template) -> float:
    """Number of tokens of a step's rationale."""
    try:
        return float(sum(len(field.text) for field in template.slow(step.rationale or {})))
    except ValueError as error:
        raise ValueError(f"stream {stream.id!r}, steps[{number}].{error}") from error
