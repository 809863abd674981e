"""The scores table: the interface between agents, which write it, and evaluation and decisions, which read it.

Contains: the table's schema and checks, reading and writing it as Parquet or JSONL.
May not contain: computing scores (`prism_jax.student.scoring`), evaluating them (`prism_jax.evaluation`).
Imports `prism_jax.runtime` and `prism_jax.decision` (the weights of labels), and nothing else of prism_jax.

Where to change what:
- a column of the scores table: `COLUMNS` in `schema.py`, a field of `Scores`, and docs/scores.md
"""

from prism_jax.scores.files import encode_scores, located, read_scores, write_scores
from prism_jax.scores.schema import Column, ScoresError
from prism_jax.scores.table import Scores

__all__ = [
    "Column",
    "Scores",
    "ScoresError",
    "encode_scores",
    "located",
    "read_scores",
    "write_scores",
]
