"""One training step, as pure functions: objective, gradient, optimizer, and the parameters that they move.

May not live here: files, logs, where batches come from.
"""
