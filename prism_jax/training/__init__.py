"""Training: packed streams go in, a trained student comes out.

Lives here: everything that turns labels into parameters. `pathways` decides what a run learns from, `input` makes
batches, `optimization` implements one step, `checkpoints` and `logs` write what a run keeps, `memory` estimates whether
a step fits.
May not live here: how a trained student is deployed (`policy`) or judged (`evaluation`).
Imports decision, prompting, runtime, slots, streams and student.
"""
