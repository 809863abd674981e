"""What a run tells of itself while it trains: one JSON line a step, TensorBoard, a bar, rates, traces.

May not live here: anything that training goes on from (`checkpoints`).
"""
