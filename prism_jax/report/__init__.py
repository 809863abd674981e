"""What people look at: tables for terminal, Markdown, CSV, LaTeX and HTML, figures, and the HTML report.

Lives here: how results are shown and written.
May not live here: how they are measured (`prism_jax.evaluation`, which never imports this folder).
"""
