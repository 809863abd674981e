"""How a process runs: command lines, configs, files, several processes, and provenance of results.

Lives here: what every main and every package needs from the machine.
May not live here: streams, models, decisions. Imports nothing else of prism_jax.
"""
