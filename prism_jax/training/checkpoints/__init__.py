"""A run's checkpoints: saved atomically, and restored from the newest one that is not damaged.

Does not belong here: logs (`logs`), or the content of the training state (`optimization`).
"""
