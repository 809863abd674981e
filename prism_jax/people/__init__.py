"""People: logs of offers that people accepted or rejected, and a model of each person's own rate.

Contains: reading an acceptance log of any columns; the person layer on top of any score; the store of what an agent
knows of each person.
May not contain: a language model, streams or prompts; tables and their files (report), and whole jobs (recipes).
Imports `prism_jax.decision`, `prism_jax.scores` and `prism_jax.runtime`; only `__main__` imports the recipe it runs.
An agent loads the layer and the store without the readers of logs, so nothing is imported here.

Where to change what:
- a person's own rate, its update, or the fit of the population: `layer.py`, docs/maths.md
- when a late answer counts, or how a log is cut into lanes: `lanes.py`
- how the population's map follows everybody's answers: `recalibration.py`; the measurement in
  `prism_jax/experiments/recalibration.py`
- what is stored of a person, its format, deletion: `store.py`, `prism_jax/policy/erasing.py`; the jobs in
  `prism_jax/recipes/people_store.py`
- what predicts acceptance from context, or the features of a column: `context.py`, `design.py`
- the study of a log, its rows and its measures: `study.py`, `measures.py`; the tables and files in
  `prism_jax/recipes/people.py`
- an acceptance log: its roles of columns, their checks, or a file format: `columns.py`, `cells.py` and `logs.py`,
  `log_files.py`
"""
