"""Streams of user events: the data types, JSONL files, the simulator, ProactiveBench and splits of whole streams.

Contains: code that reads, checks, generates, edits and splits streams of events with their labels.
May not contain: tokens, prompts, models, probabilities estimated by a model, costs and decisions.
Imports `prism_jax.runtime` and nothing else of prism_jax.

Where to change what:
- untrusted texts in prompts of other models: `fenced.py`
- what others have published, or a new source of it: `published/table.py`, and a reader per layout beside it
- what training reads: `DataConfig.name` and `_load` in `sources.py`
- the simulator's items: `simulator.py`, its texts in `simulator_text.py`
- the simulator's switches: `switches.py`
- the labels, log and teacher of simulated streams: `outcomes.py`
- how streams are split: `splits.py`; how many files of them are cut into shards: `shards.py`
- how traces are read, or ProactiveBench's own scores: `traces.py`; `prism_jax/proactivebench/official.py`,
  `prism_jax/proactivebench/published.py`; the tables in `prism_jax/proactivebench/tables.py`, the job in
  `prism_jax/proactivebench/scoring.py`
"""

from prism_jax.streams.types import RESPONSE_KEYS, Candidate, Event, Step, Stream

__all__ = ["RESPONSE_KEYS", "Candidate", "Event", "Step", "Stream"]
