"""Judges: models that say whether a user would accept a proposal, or silence, and what their verdicts are worth.

Belongs here: the question (`prompts`), asking it (`judging`), the file of verdicts (`votes`), majorities (`panels`) and
labelled streams (`labelling`), the numbers about agreement and robustness, and simulated judges.
Does not belong here: the client that talks to an endpoint (`prism_jax.remote`), formulas on arrays of labels
(`prism_jax.decision`), and tables, which `prism_jax.report` makes of the numbers. It must not import a student.
"""
