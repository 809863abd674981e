"""Exports a run: the name that users type for `prism_jax/commands/export.py`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("prism_jax.commands.export", run_name="__main__", alter_sys=True)
