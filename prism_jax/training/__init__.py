"""Training: packed streams go in, a trained student comes out.

Belongs here: everything that turns labels into parameters, in this order: `run.py` resolves a config into streams,
template and student; `job.py` plans what trains on them, by `pathways` (data, targets) and `input_pipeline` (batches);
`loop.py` runs the steps of `optimization`. `checkpoints` and `logs` write what a run keeps, `memory` estimates whether
a step fits, `compiled` asks the compiler.
Does not belong here: how a trained student is deployed (`agent`) or judged (`evaluation`).

Where to change what:
- what p_need estimates (`loss.need_target`, of a probe `fit.need_target`): `Objective._need_sums` in
  `optimization/objective.py`; `given_accept` in `prism_jax/probe/fitting.py`; `read` in `prism_jax/scores/labels.py`;
  `NEED_TARGETS` in `prism_jax/scores/schema.py`
- a loss term: the list in `prism_jax/decision/__init__.py`
- a training pathway: `PATHWAYS` and `Name` in `pathway_config.py`; its row in docs/training.md
- which rows curation keeps, or the mark on a curated file: `pathways/curated.py`; the file and its summary in
  `prism_jax/runs/curation.py`
- the report of updates, or the warning of few: `updates` in `job.py`
- the optimizer: `optimization/optimizer.py`
- a GPU that `--plan --target` compiles for: `CARDS` in `compiled/cards.py`, beside its peak
- what a plan says of a compiled step: `compiled/plan.py`; counting in `accounting.py`, what is needed in `theory.py`
- what of a run's inputs is compared: `fingerprints.py`
"""
