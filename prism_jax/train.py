"""Trains a student: the name that users type for `prism_jax/commands/train.py`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("prism_jax.commands.train", run_name="__main__", alter_sys=True)
