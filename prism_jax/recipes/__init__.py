"""Whole jobs, from a config to its results: train, score, evaluate and export a run, check a machine.

Belongs here: jobs that mains and experiments share. A main adds flags and one call.
Does not belong here: anything that needs only one of the packages below.

Where to change what:
- the second stage on the student's own fields: `own_fields.py`; `PathwayConfig.own_fields`
- a main, or a new one: `prism_jax/NAME.py` with `define_flags` and a `main` that `command.start` runs; the work
  itself goes into this folder; its place in the layers of `pyproject.toml` and in `tests/test_architecture.py`
- the questions to a new person, or the fit of a population to records: `rating.py`, `population.py`
- the evaluation of an acceptance log, or its conversion to a scores file: `acceptance_log.py`; its predictions in
  `prism_jax/people/study.py`
- how the agent's records become traces: `trace_export.py`
"""
