"""The hinge: the scores table, which any agent can write and all that lies right of the language model reads.

Lives here: the table's schema and checks, reading and writing it as Parquet or JSONL.
May not live here: how scores are made (policy), what they are worth (decision, evaluation).
Imports `prism_jax.runtime` and nothing else of prism_jax.
"""

from prism_jax.scores.files import encode_scores, read_scores, write_scores
from prism_jax.scores.schema import Column, ScoresError
from prism_jax.scores.table import Scores

__all__ = [
    "Column",
    "Scores",
    "ScoresError",
    "encode_scores",
    "read_scores",
    "write_scores",
]
