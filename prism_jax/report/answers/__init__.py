"""A log of answers in words, tables and a page; what they show is found in `prism_jax.evaluation.answers`.

Belongs here: everything that is said or drawn of a log. Does not belong here: its numbers.

Where to change what:
- a table: `tables.py`; the rule on the log's own score in words: `sentences.py`
- what a study leaves behind, and its page: `publish.py`; what is shown of a log without roles: `looking.py`
"""
