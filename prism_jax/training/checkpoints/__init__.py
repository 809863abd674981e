"""A run's state on disk: saved whole or not at all, and read back from the newest checkpoint that is whole."""
