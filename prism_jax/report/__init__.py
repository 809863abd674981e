"""How results are shown: tables (terminal, Markdown, CSV, LaTeX, HTML), figures, and the HTML report.

Belongs here: the form in which results are shown and written.
Does not belong here: how results are measured (`prism_jax.evaluation`, which never imports this folder).
"""
