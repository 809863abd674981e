"""A run's checkpoints: saved atomically, and restored from the newest one that is not damaged.

May not live here: logs (`logs`), or the content of the training state (`optimization`).
"""
