"""What a training step holds in memory, and whether the devices have that."""
