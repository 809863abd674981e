"""The deployed agent: scores streams with a trained student, as rows of the scores table.

Contains: the fast pass over slots.
May not contain: training, evaluation.
Imports slots, prompting, student, decision, streams and scores.
"""
