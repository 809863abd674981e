"""The logs of a training run: one JSON line per step, TensorBoard, a progress bar, rates and profiler traces.

May not live here: anything that a resumed run needs (`checkpoints`).
"""
