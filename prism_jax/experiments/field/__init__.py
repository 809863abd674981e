"""The field on one page: anybody's data and anybody's baselines, in one table.

Belongs here: what a baseline and a source are (`interface.py`), the baselines, and the tables over them.
Statistics belong elsewhere: they are those of `evaluation`, `decision` and `experiments.ranking`.

To add a baseline, write a file beside these with a `Baseline`, and list it in `registry.py`.
"""
