"""The memory that a training step needs, and whether the devices have enough of it.

Does not belong here: anything that allocates device memory.
"""
