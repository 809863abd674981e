"""Audits tables of results as they are printed, with nothing but the table (see `docs/paper.md`).

Belongs here: reading a CSV of printed numbers, what each number may stand for, the counts that can have produced a row,
and checks within rows, between rows and between tables. They need no scores, labels, model or evaluation;
`__main__.py` prints by the report's `Table`. `auditing.py` runs all of them; the other modules are one check or idea
each. May not import a model or an evaluation.

Where to change what:
- a check of printed tables, or a new one: a module of this folder that returns findings, called in `auditing.py`;
  the headings in `quantities.py` beside it
"""
