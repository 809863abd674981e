"""The deployed agent: reads live streams, thinks where it pays, decides, and records every decision.

Belongs here: the agent with its reader, trigger, gate, records and replay; the fast pass over slots, the slow pass and
its fields, responses, and their grammars.
Does not belong here: training, evaluation.
Imports decision, prompting, runtime, slots, streams and student. `prism_jax.policy.agent` is the door.

Where to change what:
- how live streams are read and cached: `live.py`; batches in `prism_jax/student/engine.py`, which tokens and streams
  stay in `prism_jax/student/trunks.py`, pages in `prism_jax/student/pages.py`
- how a probe decides on live streams: `probe_reader.py`, `live_states.py`, `prism_jax/recipes/probe_export.py`
- what an agent does with a person: prediction, optimism, answers, alarm: `personal.py`,
  `prism_jax/people/optimism.py`, `people.py`
- what a deployment may choose without training: `Terms` and `Settings` in `settings.py`; its flag in
  `prism_jax/agent.py`, read in `prism_jax/recipes/serving.py`; `Changes` in `replay.py`
- a key of the decision records: `Decision` in `records.py`, its row in docs/agent.md
- what the agent asks of a language model: `Reader` in `reader.py`
- when the agent thinks: `fires` in `gating.py`
"""
