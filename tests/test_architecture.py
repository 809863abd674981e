"""What may import what, and what the right half of the package loads."""

import ast
import builtins
import dis
import json
import pathlib
import subprocess
import sys
import tomllib
import types

import pytest

REPOSITORY = pathlib.Path(__file__).parents[1]
PACKAGE = REPOSITORY / "prism_jax"
FOLDERS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))

# The arrows of the design: whom each folder may import. Experiments may import everything, and nothing them.
MAY_IMPORT = {
    "decision": set(),
    "streams": set(),
    "scores": set(),
    "student": set(),
    "prompting": {"streams"},
    "training": {"prompting", "student", "decision", "streams"},
    "policy": {"prompting", "student", "decision", "streams", "scores"},
    "evaluation": {"decision", "scores", "streams"},
}


def test_imports_run_along_the_arrows():
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(MAY_IMPORT)} kept, 0 broken" in done.stdout


def test_contracts_forbid_every_other_arrow():
    """A folder that is new, or an arrow that a contract forgets, shows here."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    forbidden = {}
    for contract in contracts:
        assert contract["type"] == "forbidden"
        (source,) = contract["source_modules"]
        forbidden[source.removeprefix("prism_jax.")] = set(contract["forbidden_modules"])
    assert sorted([*MAY_IMPORT, "experiments"]) == FOLDERS
    for folder, allowed in MAY_IMPORT.items():
        others = {f"prism_jax.{other}" for other in FOLDERS if other not in {folder, *allowed}}
        assert others <= forbidden[folder], f"{folder}: the contract lets it import {others - forbidden[folder]}"
        assert not {f"prism_jax.{other}" for other in allowed} & forbidden[folder]


def undefined(path):
    """Names that a file's functions load and nothing of it binds; annotations, which are strings, load none."""
    whole = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    bound = {i.argval for i in dis.get_instructions(whole) if i.opname in ("STORE_NAME", "STORE_GLOBAL")}
    pending, found = [whole], set()
    while pending:
        code = pending.pop()
        pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        found |= {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return found - bound - set(dir(builtins)) - {"__file__"}


def test_functions_use_no_name_that_nothing_binds(tmp_path):
    """Ruff and mypy cannot tell: they take the axes of jaxtyping's shapes for names."""
    (tmp_path / "broken.py").write_text("import os\n\ndef f(x: 'B L'):\n    return os, len(x), logging\n")
    assert undefined(tmp_path / "broken.py") == {"logging"}
    files = [path for folder in ("prism_jax", "benchmarks", "configs") for path in (REPOSITORY / folder).rglob("*.py")]
    assert {str(path): names for path in files if (names := undefined(path))} == {}


LOADED = """
import importlib, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize("folder", ["decision", "scores", "evaluation"])
def test_the_right_half_loads_no_language_model(folder):
    """Every module of the folder, in a process of its own."""
    command = [sys.executable, "-c", LOADED, f"prism_jax.{folder}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert {"prism_jax", "numpy"} <= loaded
    assert not {"flax", "transformers", "tokenizers", "torch", "orbax", "grain", "tensorflow", "sklearn"} & loaded


def test_every_module_says_what_it_is_and_every_folder_what_it_may_hold():
    says = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in PACKAGE.rglob("*.py")}
    assert [path for path, text in says.items() if not text] == []
    folders = [path for path in PACKAGE.rglob("*/__init__.py") if path.parent != PACKAGE]
    assert len(folders) > len(FOLDERS)
    assert [path for path in folders if " may " not in says[path].lower().replace("\n", " ")] == []


def test_every_folder_is_a_package():
    """Without an `__init__` a folder is left out of what is installed."""
    for path in PACKAGE.rglob("*.py"):
        assert (path.parent / "__init__.py").is_file(), path
