"""Judges: models that say whether a user would accept a proposal, or silence, and what their verdicts are worth.

Belongs here: the question (`prompts`), asking it (`judging`), the file of verdicts (`votes`), majorities (`ballots`),
labelled streams (`labelling`), the numbers about agreement and robustness, and simulated judges.
Does not belong here: the client that talks to an endpoint (`prism_jax.remote`), formulas on arrays of labels
(`prism_jax.decision`), and tables, which `prism_jax.report` makes of the numbers. It must not import a student.

Where to change what:
- the judges' question: the constants at the top of `prompts.py`, and `prism_jax/streams/fenced.py`
- how verdicts become labels: `PanelConfig` and `panel_labels` in `ballots.py`; `labelling.py`
- the tables about judges: numbers in `agreements.py` and `robustness.py`, tables in `prism_jax/report/judges.py`;
  those of real votes in `studies/judges.py`
"""
