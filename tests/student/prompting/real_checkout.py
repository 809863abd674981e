"""The real checkout of ProactiveBench beside the project, where it is: its scripts are oracles of tests."""

from __future__ import annotations

import os
import pathlib
import sys
import types
from typing import Any

import pytest

CHECKOUT = pathlib.Path(
    os.environ.get("PRISM_PROACTIVEBENCH", pathlib.Path(__file__).parents[4] / "shared" / "proactivebench")
)
needs_checkout = pytest.mark.skipif(
    not CHECKOUT.is_dir(),
    reason=f"needs ProactiveBench's repository at {CHECKOUT} (PRISM_PROACTIVEBENCH names another folder)",
)


def run_script(script: str, **modules: Any) -> dict[str, Any]:
    """The names of a published script after it ran, with stand-ins for modules that it imports."""
    stand_ins = {name: types.SimpleNamespace(**values) for name, values in modules.items()}
    before = {name: sys.modules.get(name) for name in stand_ins}
    names: dict[str, Any] = {"__name__": script, "__file__": str(CHECKOUT / script)}
    sys.modules.update(stand_ins)
    try:
        exec(compile((CHECKOUT / script).read_text(), script, "exec"), names)
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None) if module is None else sys.modules.update({name: module})
    return names
