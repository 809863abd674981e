"""Logs of offers that people accepted or rejected: reading, study, measures (docs/acceptance_logs.md).

Belongs here: reading a log of any columns, what predicts its answers, what its own score and costs ask for.
Does not belong here: the person layer and its store, which agents use (`prism_jax.people`); a language model.

Where to change what:
- a log's roles of columns, their checks, or a file format: `columns.py`, `cells.py`, `written_times.py`,
  `log_tables.py`, `logs.py`, `log_files.py`
- what is shown of a log without roles, and how these are guessed: `looking.py`
- what predicts acceptance from context, or the features of a column: `context.py`
- the study of a log, in memory or in parts: `study.py`; its parts, its sums over them, its measures: `parts.py`,
  `statistics.py`, `labelled.py`, `measures.py`
- the conversion of a log to a scores file: `log_scores.py`; the evaluation of a log is `runs/answers.py`
- a table of the evaluation: `tables.py`, `by_answers.py`, `by_group.py`, `own_score.py`
- the page of a log: `page.py`, `curves.py`
- the threshold on a log's own score: `own_score.py`; its maps: `prism_jax/decision/score_maps.py`
"""
