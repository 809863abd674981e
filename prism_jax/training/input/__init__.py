"""The input pipeline: packs a run's streams into rows of few shapes and iterates over batches of rows.

Does not belong here: the choice of data and targets (`pathways`), or the training step (`optimization`).
"""
