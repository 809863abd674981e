"""ProactiveBench's own scores: of traces, as published, and of an agent's records (docs/proactivebench.md).

Belongs here: the official scorer with its quirks and without, checks of published scores, records as traces.
Does not belong here: reading the data set, which is a source of streams (`prism_jax.streams`).

Where to change what:
- how traces are scored: `official.py`; by which judge, and the files: `scoring.py`; the tables: `tables.py`
- what published scores can come from: `published.py`
- how the agent's records become traces: `traces.py`
"""
