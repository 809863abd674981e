"""The decision layer: pure functions on arrays of scores, labels and costs (see `docs/decision.md`).

Belongs here: the gate and its policies, losses, calibration, metrics, curves and their uncertainty. NumPy inputs give
NumPy outputs; JAX arrays or tracers give JAX arrays.
Does not belong here: anything that depends on a model, a stream, a file or a clock, or imports another folder of this
package. Users import modules: `from prism_jax.decision import gate`.
"""
