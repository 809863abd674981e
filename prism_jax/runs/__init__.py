"""Whole jobs that commands and studies share: train, score, evaluate and export a run; check a machine.

Belongs here: a job that needs several of the packages below and has more than one caller, or is long.
Does not belong here: flags, and the job of a single command (`prism_jax.commands`).

Where to change what:
- train, score, evaluate a run, and a second stage on the student's own fields: `pipeline.py`
- a folder of trainings that studies share: `store.py`
- the scores of many streams, in shards: `many_streams.py`; who works on them: `workers.py`
- an export: `export.py`, `probe_export.py`; the rule in words: `RULE` in `export.py`
- the evaluation of a scores file of any agent: `scores_files.py`; of a log of answers: `answers.py`; the flags that say
  how files are read: `running.py`
- the check of a machine, and memory plans: `machine.py`
- curation, promises and counterfactual costs of a file: `curation.py`, `promising.py`, `counterfactual.py`
"""
