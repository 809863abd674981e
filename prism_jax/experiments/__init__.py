"""Experiments: each is a module with a `main` that answers one question; a table of the paper has `make` in its place.

Belongs here: code that trains, runs and evaluates for one experiment; no other part of the package may import it.
Every experiment fixes its criteria before it runs and prints its results with intervals.

Where to change what:
- baselines on other people's data: `field/`
- a table of the paper, or a new one: its module in `paper/`, `EXPERIMENTS` in `paper/registry.py`, the row in
  docs/paper.md
- the students of the paper's tables, or how trainings are kept: `paper/trainings.py`; `prism_jax/runs/store.py`
- the simulated judges of the paper's tables, or the seconds: `paper/pools.py`; `paper/timing.py`
- the distillation demo: commands in `distill_demo.py`, report in `distill_report.py`, the student in
  `prism_jax/training/students.py`
- the paper in one script: its stages in `reproduce.py`, what they cost in earnest in `real_costs.py`; how stages follow
  one another: `stages.py`
- how a study is started, printed and written: `by_name.py`; a new study: `studies/` beside the package
"""
