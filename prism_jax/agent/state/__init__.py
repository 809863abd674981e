"""Durable state of an agent that many callers share: streams, people, decisions and outcomes, divided by person.

Belongs here: the store of partitions, what is in one, who owns it, and the agent that decides on it.
Does not belong here: HTTP (`prism_jax.agent.service`), and how a decision is made (`prism_jax.agent.agent`).

Where to change what:
- tables and their formats: `schema.py`; what is kept in them: `partition.py`
- who owns a partition, and what of a change is on the disk when: `owned_file.py`
- where partitions lie, and whether a file is the one that was made there: `places.py`
- which partition a stream or a person has, and which are open: `store.py`
- whose a stream is, how what an agent decides is kept, and read again: `kept.py`
- how requests of many callers are answered: `durable.py`; state from files and into them: `moving.py`
- what a person may ask for, and what it would have changed: `preferences.py`
- reading records beside the agent that writes them: `reading.py`
"""
