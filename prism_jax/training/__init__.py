"""From packed streams to a trained student: objective, optimizer, one donated step, input pipeline, checkpoints, loop.

Lives here: everything that turns labels into parameters.
May not live here: how a trained student is deployed (`policy`) or judged (`evaluation`).
Imports prompting, student, decision and streams.
"""
