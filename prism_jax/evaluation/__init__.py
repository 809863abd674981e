"""Calibration and evaluation of a scores table.

Belongs here: the protocol (which split is used for what), the policies that are compared, and the results' records.
Does not belong here: models, training, prompts; the formulas (`prism_jax.decision`), the scores table
(`prism_jax.scores`), tables and figures (`prism_jax.report`).
"""
