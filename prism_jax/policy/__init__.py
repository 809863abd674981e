"""The deployed agent: scores streams with a trained student, as rows of the scores table.

Belongs here: the fast pass over slots.
Does not belong here: training, evaluation.
Imports slots, prompting, student, decision, streams and scores.
"""
