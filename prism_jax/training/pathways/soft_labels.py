"""Soft acceptance labels: the share of annotators who would accept, instead of the majority's decision."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from prism_jax.streams import Candidate, Stream
from prism_jax.streams.edit import map_candidates


def with_soft_labels(streams: Iterable[Stream]) -> list[Stream]:
    """Returns the streams with every acceptance label that has votes replaced by the mean of these votes."""
    return [map_candidates(stream, _soften) for stream in streams]


def _soften(candidate: Candidate) -> Candidate:
    if candidate.y_accept is None or not candidate.votes:
        return candidate
    return dataclasses.replace(candidate, y_accept=sum(candidate.votes) / len(candidate.votes))
