"""Calibrates and evaluates: the name that users type for `prism_jax/commands/evaluate.py`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("prism_jax.commands.evaluate", run_name="__main__", alter_sys=True)
