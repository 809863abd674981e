"""Which part may import which, and what the decision half of the package loads."""

import ast
import builtins
import json
import pathlib
import re
import subprocess
import symtable
import sys

import grimp
import pytest

REPOSITORY = pathlib.Path(__file__).parents[1]
PACKAGE = REPOSITORY / "prism_jax"
FOLDERS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def programs(*folders):
    return [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]


def test_imports_run_downwards():
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 kept, 0 broken" in done.stdout


def test_there_are_no_import_cycles():
    graph = grimp.build_graph("prism_jax", cache_dir=None)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            assert not graph.chain_exists(importer=imported, imported=module), (module, imported)


def undefined(path):
    """Names that a file's functions load although nothing in it binds them; annotations are strings and load none."""
    whole = symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec")
    bound = {name.get_name() for name in whole.get_symbols() if name.is_assigned() or name.is_imported()}
    pending, loaded = whole.get_children(), set()
    while pending:
        function = pending.pop()
        pending += function.get_children()
        loaded |= {name.get_name() for name in function.get_symbols() if name.is_global() and name.is_referenced()}
    return loaded - bound - set(dir(builtins)) - {"__file__"}


def test_functions_use_no_unbound_name(tmp_path):
    """Ruff and mypy cannot check this, because they take the axes of jaxtyping's shapes for names."""
    (tmp_path / "broken.py").write_text("import os\n\ndef f(x: 'B L'):\n    return os, len(x), logging\n")
    assert undefined(tmp_path / "broken.py") == {"logging"}
    assert {
        str(path): names
        for path in programs("prism_jax", "benchmarks", "configs", "studies")
        if (names := undefined(path))
    } == {}


LOADED = """
import importlib, json, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_the_decision_half_loads_no_language_model():
    """Imports every module of its folders in a separate process."""
    folders = ("decision", "scores", "people", "evaluation", "report")
    command = [sys.executable, "-c", LOADED, *(f"prism_jax.{folder}" for folder in folders), "studies.audit_tables"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert {"prism_jax", "numpy"} <= loaded
    assert not {"flax", "transformers", "tokenizers", "torch", "orbax", "grain", "tensorflow", "sklearn"} & loaded


@pytest.mark.slow
def test_tables_and_scores_of_files_need_no_extra():
    """What asks nobody runs on the packages of a plain installation."""
    code = """
import importlib, sys
sys.modules |= dict.fromkeys(("json5", "openai", "tenacity"))  # as if they were not installed
from prism_jax.experiments.paper import registry
for name in registry.EXPERIMENTS:
    registry.function(name)
for name in ("evaluate", "experiments.__main__", "commands.official_scores", "commands.curate", "commands.score"):
    importlib.import_module(f"prism_jax.{name}")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_folder_states_what_it_may_contain():
    """In its docstring; that there is one of every module is ruff's part."""
    folders = [path for path in PACKAGE.rglob("*/__init__.py") if path.parent != PACKAGE]
    says = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in folders}
    assert len(folders) > len(FOLDERS) > 10
    limits = re.compile(r"(may|must) not|does not belong|belongs? elsewhere|may ")
    assert [path for path in folders if not limits.search(says[path].lower().replace("\n", " "))] == []


def test_every_folder_is_a_package():
    """A folder without an `__init__` would not be installed."""
    for path in PACKAGE.rglob("*.py"):
        assert (path.parent / "__init__.py").is_file(), path
