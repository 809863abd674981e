"""What a run learns from: the paper's training pathways, the teacher's lessons, the log, and what a run starts from.

May not live here: losses (`optimization`), packing (`input`).
"""
