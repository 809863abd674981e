"""What a command may import before it knows its flags: help and a refused flag wait for nothing that computes."""

import ast
import functools
import json
import pathlib
import subprocess
import sys

import pytest

from prism_jax.__main__ import COMMANDS, OF_THE_PACKAGE

ROOT = pathlib.Path(__file__).parents[1]
LIGHT = {"absl", "etils", "jaxtyping", "ml_collections", "numpy", "pydantic_core", "tokenizers"}
LIGHT |= {"jinja2", "markupsafe", "rich", "scipy"}  # the last loads its parts where they are used
COMPUTING = {"jax", "flax", "pandas", "sklearn", "transformers", "orbax", "optax", "grain", "pyarrow", "tensorflow"}
COMPUTING |= {
    "tensorflow_datasets",
    "scipy.special",
    "scipy.stats",
    "scipy.optimize",
    "matplotlib",
    "fastapi",
    "openai",
}


def module_of(command):
    if (ROOT / f"prism_jax/{command}/__main__.py").is_file():
        return f"prism_jax.{command}.__main__"
    return f"prism_jax.{command}" if command in OF_THE_PACKAGE else f"prism_jax.commands.{command}"


def file_of(module):
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def statements(body):
    """The imports that run when a module with these statements is imported."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            guarded = isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
            for name in () if guarded else ("body", "orelse", "finalbody", "handlers"):
                yield from statements(getattr(statement, name, ()))


@functools.cache
def imported(module):
    """What a module of ours imports: modules of ours, packages that contain them, and others."""
    found = []
    for statement in statements(ast.parse(file_of(module).read_text(encoding="utf-8")).body):
        names = [alias.name for alias in statement.names]
        if isinstance(statement, ast.ImportFrom):
            names = [statement.module, *(f"{statement.module}.{name}" for name in names)]
            if statement.module.partition(".")[0] != "prism_jax":
                names = names if statement.module == "scipy" else names[:1]
        for name in names:
            parts = name.split(".")
            if parts[0] == "prism_jax":
                places = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
                found += [place for place in places if file_of(place)]
            elif parts[0] == "scipy":
                found.append(name)
            elif parts[0] not in sys.stdlib_module_names:
                found.append(parts[0])
    return found


def chains(module):
    """Everything that importing a module imports, each with the modules that lead to it."""
    way = {module: (module,)}
    waiting = [module]
    while waiting:
        at = waiting.pop(0)
        for name in imported(at) if at.startswith("prism_jax") else ():
            if name not in way:
                way[name] = (*way[at], name)
                waiting.append(name)
    return way


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_only_light_packages_before_it_knows_its_flags(command):
    heavy = {name: way for name, way in chains(module_of(command)).items() if not name.startswith("prism_jax")}
    assert {name: way for name, way in heavy.items() if name not in LIGHT} == {}


@pytest.mark.parametrize("module", ["streams.sources", "commands.labelling", "commands.calibrating", "agent.serving"])
def test_labelling_and_calibrating_load_neither_training_nor_a_model(module):
    """A machine that does only that has no Orbax."""
    assert {"jax", "orbax", "flax", "grain", "transformers"}.isdisjoint(chains(f"prism_jax.{module}"))


@pytest.mark.parametrize("module", ["runs.scores_files", "report.answers.looking", "runs.answers", "commands.judging"])
def test_scores_and_logs_are_read_without_jax(module):
    assert {"jax", "flax"}.isdisjoint(chains(f"prism_jax.{module}"))


def test_a_refused_run_source_or_start_waits_for_nothing_that_trains():
    """What says that a path of `evaluate`, `train` or the field's table is wrong."""
    for module in ("training.workdir", "streams.sources", "experiments.field.command"):
        assert "prism_jax.runs.pipeline" not in chains(f"prism_jax.{module}")
    assert "orbax" not in chains("prism_jax.training.workdir")


def test_imports_in_functions_and_for_types_are_not_counted():
    text = "import a\nif TYPE_CHECKING:\n    import b\ntry:\n    import c\nexcept E:\n    import d\n"
    text += "def f():\n    import e\n"
    assert [statement.names[0].name for statement in statements(ast.parse(text).body)] == ["a", "c", "d"]


ARGUMENTS = {"--help": 0, "--no_such_flag=1": 1}
"""What a command is started with, and its exit status."""
# Each start is a fork of a process that has imported some of the light packages.
RUN = """
import contextlib, io, json, os, runpy, sys
import absl.app, jaxtyping, ml_collections.config_flags, numpy, rich.console

for command in json.loads(sys.argv[1]):
    for argument in json.loads(sys.argv[2]):
        if not os.fork():
            try:
                sys.argv = ["prism_jax", command, argument]
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    runpy.run_module("prism_jax", run_name="__main__", alter_sys=True)
            except SystemExit as end:
                print(json.dumps([command, argument, end.code, sorted(sys.modules)]), flush=True)
            finally:
                os._exit(0)
        os.wait()
"""


@pytest.fixture(scope="module")
def started():
    """By command and argument: the exit status and the modules that were loaded."""
    command = [sys.executable, "-c", RUN, json.dumps([*COMMANDS]), json.dumps([*ARGUMENTS])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {(one[0], one[1]): one[2:] for one in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_help_and_a_refused_flag_load_nothing_that_computes(started, command, argument):
    status, loaded = started[command, argument]
    assert status == ARGUMENTS[argument]
    if command != "train" or not status:  # a flag of no command may name a setting, which the defaults tell
        assert COMPUTING.isdisjoint(loaded)
