"""What happened: `Event`, `Candidate`, `Step`, `Stream`; JSONL; the simulator; ProactiveBench; whole-stream splits.

Lives here: reading, checking, making and splitting streams of events with their labels.
May not live here: tokens, prompts, models, probabilities that a model estimated, costs and decisions.
Imports `prism_jax.runtime` and nothing else of prism_jax.
"""

from prism_jax.streams.types import Candidate, Event, Step, Stream

__all__ = ["Candidate", "Event", "Step", "Stream"]
