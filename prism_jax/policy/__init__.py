"""The deployed agent: reads both signals of every decision off a trained student, as rows of the scores table.

Belongs here: the fast pass over slots.
Does not belong here: training, evaluation.
Imports prompting, slots, streams and student.
"""
