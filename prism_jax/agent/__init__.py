"""The deployed agent: reads live streams, thinks where it pays, decides, and records every decision.

Belongs here: the agent with its reader, trigger, gate, records and replay; what it learns of people; its command.
Does not belong here: training, evaluation; what an evaluation does with a student, too (`prism_jax.student.scoring`).
`agent.py` is the door for callers, `decider.py` what it does, `__main__.py` the command, and `serving.py` what the
command does. `state/` keeps what is known of streams and people, `service/` has the HTTP routes, `adapters/` the
clients in other hosts.

Where to change what:
- how live streams are read and cached: `live.py`; batches in `prism_jax/student/engine.py`, which tokens and streams
  stay in `prism_jax/student/trunks.py`, pages in `prism_jax/student/pages.py`
- how a probe decides on live streams: `probe_reader.py`, `LiveStates` in `live.py`, `prism_jax/runs/probe_export.py`
- what an agent does with a person: prediction, optimism, answers, alarm: `personal.py`,
  `prism_jax/decision/person.py`, `people.py`
- what a deployment may choose without training: `Terms` and `AgentSettings` in `settings.py`; its flag in
  `prism_jax/agent/__main__.py`, read in `prism_jax/agent/serving.py`; `Changes` in `replay.py`
- a key of the decision records: `Decision` in `records.py`, its row in docs/agent.md
- what the agent asks of a language model: `Reader` in `reader.py`; of an engine: `engine_routes.py`, `engine_reader.py`
- what is asked of a decision model: `decision_reader.py`, `prism_jax/remote/decisions.py`
- when the agent thinks: `fires` in `gating.py`
- the questions to a new person: `rating.py`; the fit of a population to records: `people.py`
- how records become streams to train on: `records_streams.py`
"""
