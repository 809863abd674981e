"""A run's state on disk: saved whole or not at all, and read back from the newest checkpoint that is whole.

May not live here: what is logged (`logs`), or what a state is made of (`optimization`).
"""
