"""How a process runs: command lines, configs, files, several processes, and what a result was made with.

Lives here: what every main and every package needs of the machine.
May not live here: streams, models, decisions. Imports nothing else of prism_jax.
"""
