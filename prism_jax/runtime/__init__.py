"""How a process runs: command lines, configs, files, several processes, and provenance of results.

Belongs here: what every main and every package needs from the machine.
Does not belong here: streams, models, decisions. Imports nothing else of prism_jax.
"""
