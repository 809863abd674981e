"""What a training step holds in memory, and whether the devices have that.

May not live here: anything that allocates.
"""
