"""Streams in, batches out: where a run's streams come from, and how they become rows of few shapes.

May not live here: what a batch is trained on for (`pathways`), or how (`optimization`).
"""
