"""Audits tables of results as they are printed, with nothing but the table (see `docs/paper.md`).

Belongs here: reading a CSV of printed numbers, what each number may stand for, the counts that can have produced a row,
and checks within rows, between rows and between tables. May not import a model, an evaluation or a report: the checks
need no scores and no labels. `auditing.py` runs all of them; the other modules are one check or one idea each.

Where to change what:
- a check of printed tables, or a new one: a module of this folder that returns findings, called in `auditing.py`;
  the headings in `quantities.py` beside it
"""
