"""Exports a run: `python -m prism_jax.export` runs `prism_jax/commands/export.py`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("prism_jax.commands.export", run_name="__main__", alter_sys=True)
