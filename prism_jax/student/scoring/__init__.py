"""What a student says at a decision: slots, the fast pass, the slow pass with its fields, responses, their grammars.

Belongs here: whatever evaluation of a run and the deployed agent both do with a student, as rows of the scores table.
Does not belong here: decisions (`prism_jax.decision`), live streams and their caches (`prism_jax.agent`), training.

Where to change what:
- how slots are read: `slots.py`; the fast pass over whole streams: `fast.py`
- the slow pass and its fields: `slow.py`; what may be written: `grammar.py`; how it is written: `writing.py`
- responses: `responses.py`; everything at every decision of an evaluation: `passes.py`
- what a student is, with its prompt: `student.py`
"""
