"""The decision layer: pure functions on arrays of scores, labels and costs (see `docs/decision.md`).

Here live the gate, its losses, calibration, metrics, curves and their uncertainty; NumPy arrays in give NumPy arrays
out, JAX arrays or tracers give JAX. Nothing here may know a model, a stream, a file or a clock, or import another
folder of this package. Users import modules: `from prism_jax.decision import gate`.
"""
