"""A model of each person's own rate of acceptance, and the store of what an agent knows of each person.

Belongs here: the person layer on top of any score; a person in front of a gate; the store, its exports, deletion.
Does not belong here: logs of offers and their study (`prism_jax.evaluation.answers`), a language model, streams.
An agent loads the layer and the store without the readers of logs, so nothing is imported here.

Where to change what:
- a person's own rate, its update, or optimism: `prism_jax/decision/person.py`, docs/maths.md
- a person in Python, in memory alone (`Gate.person`): `in_memory.py`
- the fit of the population, or predictions over a log: `layer.py`, and `scan.py`, which XLA compiles
- when a late answer counts, or how a log is cut into lanes: `lanes.py`
- how the population's map follows everybody's answers: `recalibration.py`; the measurement in
  `studies/coverage/recalibration.py`
- what is stored of a person, its format, deletion: `store.py`, `exports.py`, `prism_jax/agent/records_file.py`; the
  command in `prism_jax/commands/state.py`
"""
