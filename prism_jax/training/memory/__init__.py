"""The memory that a training step needs, and whether the devices have enough of it.

May not live here: anything that allocates device memory.
"""
