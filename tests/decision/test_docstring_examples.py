"""The examples in the docstrings of the decision library print what they show."""

import doctest
import importlib
import pathlib

import pytest

import prism_jax.decision

FOLDER = pathlib.Path(prism_jax.decision.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(FOLDER.parents[1]).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


def test_the_central_functions_have_examples():
    assert len(MODULES) >= 8
    assert {"prism_jax.decision.gate", "prism_jax.decision.metrics", "prism_jax.decision.surface"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run_as_printed(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
