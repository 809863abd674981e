"""The deployed agent: reads live streams, thinks where it pays, decides, and records every decision.

Belongs here: the agent with its reader, trigger, gate, records and replay; the fast pass over slots, the slow pass and
its fields, responses, and their grammars.
Does not belong here: training, evaluation.
Imports decision, prompting, runtime, slots, streams and student. `prism_jax.policy.agent` is the door.
"""
