"""The logs of a training run: one JSON line per step, TensorBoard, a progress bar, rates and profiler traces.

Does not belong here: anything that a resumed run needs (`checkpoints`).
"""
