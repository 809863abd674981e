"""How results are shown: tables (terminal, Markdown, CSV, LaTeX, HTML), figures, and the HTML report.

Belongs here: the form in which results are shown and written.
Does not belong here: how results are measured (`prism_jax.evaluation`, which never imports this folder).

Where to change what:
- a results table, or a new one: a function in `tables.py` that returns a `Table`, listed in `all_tables`. New
  numbers, and LaTeX (CONTRIBUTING.md)
- how tables are rendered (terminal, Markdown, CSV, LaTeX, HTML): `Table` in `table.py`
- the HTML report: `page.py` and its templates, `report.html.jinja`
- the page that compares runs: `COLUMNS` in `prism_jax/commands/report.py`, `index.html.jinja`
- what is said of a log of answers: `answers/`
"""
