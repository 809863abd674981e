"""How a process runs: command lines, configs, files, several processes, and provenance of results.

Belongs here: what every main and every package needs from the machine.
Does not belong here: streams, models, decisions. Imports nothing else of prism_jax.

Where to change what:
- digests of checkpoint files: `digests.py`, `prism_jax/training/checkpoints/checkpoint.py`
- the lock of a workdir: `lock.py`
- which credentials are cut from what is shown: `shown_text.py`
- which personal data is cut from records and prompts: `personal_data.py`
- the style of the pages that people fill in: `page.css`
"""
