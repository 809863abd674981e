"""People: logs of offers that people accepted or rejected, and a model of each person's own rate.

Contains: reading an acceptance log of any columns; the person layer on top of any score; the store of what an agent
knows of each person.
May not contain: a language model, streams or prompts; tables and their files (report), and whole jobs (recipes).
Imports `prism_jax.decision`, `prism_jax.scores` and `prism_jax.runtime`; only `__main__` imports the recipe it runs.
An agent loads the layer and the store without the readers of logs, so nothing is imported here.
"""
