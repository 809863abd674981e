"""Streams of user events: the data types, JSONL files, the simulator, ProactiveBench and splits of whole streams.

Contains: code that reads, checks, generates, edits and splits streams of events with their labels.
May not contain: tokens, prompts, models, probabilities estimated by a model, costs and decisions.
Imports `prism_jax.runtime` and nothing else of prism_jax.
"""

from prism_jax.streams.types import Candidate, Event, Step, Stream

__all__ = ["Candidate", "Event", "Step", "Stream"]
