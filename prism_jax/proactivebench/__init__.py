"""ProactiveBench's own scores: of traces, as published, and of what others did (docs/proactivebench.md).

Belongs here: the official scorer with its quirks and without, checks of published scores, traces of agents, of teachers
and of models that are prompted as the benchmark's agent.
Does not belong here: reading the data set, which is a source of streams (`prism_jax.streams`).

Where to change what:
- how traces are scored: `official.py`; by which judge, and the files: `scoring.py`; the tables: `tables.py`
- what published scores can come from: `published.py`
- how an agent's records and a teacher's answers become traces: `traces.py`
- how a model is prompted as the benchmark's agent: `prompted.py`
"""
