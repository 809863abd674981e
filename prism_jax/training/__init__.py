"""From packed streams to a trained student: objective, optimizer, one donated step, input pipeline, checkpoints, loop.

Lives here: everything that turns labels into parameters. `pathways` says what a run learns from, `input` makes batches,
`optimization` is one step, `checkpoints` and `logs` are what it leaves behind, `memory` says whether it fits.
May not live here: how a trained student is deployed (`policy`) or judged (`evaluation`).
Imports prompting, student, decision and streams.
"""
