"""The input pipeline: packs a run's streams into rows of few shapes and iterates over batches of rows.

May not live here: what a batch is trained on for (`pathways`), or how it is trained on (`optimization`).
"""
