"""Training: packed streams go in, a trained student comes out.

Belongs here: everything that turns labels into parameters. `pathways` chooses data and targets, `input` makes
batches, `optimization` implements one step, `checkpoints` and `logs` write what a run keeps, `memory` estimates whether
a step fits.
Does not belong here: how a trained student is deployed (`policy`) or judged (`evaluation`).
Imports decision, prompting, runtime, slots, streams and student.
"""
