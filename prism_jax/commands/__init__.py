"""The commands, one module each: its flags, and one call of the job that they describe.

Belongs here: what `python -m prism_jax NAME` runs, and a job that only one command does. A long job has a module of its
own, such as `judging.py`, which is imported once the flags are known: help and a refused flag load no library that
computes (tests/test_starts.py).
Does not belong here: what a study or a second command also does (`prism_jax.runs`), formulas, tables of evaluation.
`agent` and `experiments` stand in their own folders; `train.py`, `evaluate.py` and `export.py` of the package are names
that users type for the modules here.

Where results go: `--workdir` is a folder of them; `--out` the file of a command that makes one; `--WHAT_out` a further
file, such as `--scores_out`.

A new command is a module here with `define_flags` and `main`, and a line of `COMMANDS` in `prism_jax/__main__.py`.
"""
