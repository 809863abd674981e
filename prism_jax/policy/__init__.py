"""The deployed agent: what a trained student says about streams, as rows of the scores table.

Lives here: the fast pass over slots.
May not live here: training, evaluation.
Imports prompting, student, decision, streams and scores.
"""
