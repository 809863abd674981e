"""People: logs of offers that people accepted or rejected, and a model of each person's own rate.

Contains: reading an acceptance log of any columns, and the person layer on top of any score.
May not contain: a language model, streams or prompts; tables and their files (report), and whole jobs (recipes).
Imports `prism_jax.decision`, `prism_jax.scores` and `prism_jax.runtime`; only `__main__` imports the recipe it runs.
"""

from prism_jax.people.columns import LogColumns, LogError, parse_columns
from prism_jax.people.layer import Belief, Population, believe, fit_population, predict, prequential, update
from prism_jax.people.logs import AcceptanceLog, ContextColumn, read_log

__all__ = [
    "AcceptanceLog",
    "Belief",
    "ContextColumn",
    "LogColumns",
    "LogError",
    "Population",
    "believe",
    "fit_population",
    "parse_columns",
    "predict",
    "prequential",
    "read_log",
    "update",
]
