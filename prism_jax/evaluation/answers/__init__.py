"""Logs of offers that people accepted or rejected: reading, study, measures (docs/acceptance_logs.md).

Belongs here: reading a log of any columns, what predicts its answers, what its own score and costs ask for.
Does not belong here: the person layer and its store, which agents use (`prism_jax.people`); a language model.

Where to change what:
- a log's roles of columns, their checks, or a file format: `columns.py`, `cells.py`, `written_times.py`,
  `log_tables.py`, `logs.py`, `log_files.py`
- what is shown of a log without roles, and how these are guessed: `prism_jax/report/answers/looking.py`
- what predicts acceptance from context, or the features of a column: `context.py`
- the study of a log, in memory or in parts: `study.py`; its parts, its sums over them, its measures: `parts.py`,
  `statistics.py`, `labelled.py`, `measures.py`
- the conversion of a log to a scores file: `log_scores.py`; the evaluation is `prism_jax/runs/answers.py`
- what a study finds: `findings.py`, `by_group.py`, `curves.py`; its tables and page: `prism_jax/report/answers/`
- the threshold on a log's own score: `own_score.py`; its maps: `prism_jax/decision/score_maps.py`
"""
