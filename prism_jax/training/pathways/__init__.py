"""The paper's training pathways: which streams, targets and weights a run trains on, and which run it starts from.

May not live here: losses (`optimization`), packing (`input`).
"""
