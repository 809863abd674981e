"""Calibration and evaluation of a scores table.

Lives here: the protocol, that is the use of each split, the policies that are compared, and the records of the results.
May not live here: models, training, prompts; the formulas (`prism_jax.decision`), the scores table
(`prism_jax.scores`), tables and figures (`prism_jax.report`).
"""
