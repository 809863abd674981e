"""The examples of the page run, and it leads to every module."""

import ast
import doctest
import importlib
import inspect
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "decision.md"
MODULES = (
    *("gate", "surface", "thinking", "budgets", "value_surface", "audbc", "losses", "curation"),
    *("calibration", "metrics", "judge_noise", "uncertainty", "drift"),
)
DOORS = (*MODULES, "operating_point", "passes", "policies", "arrays")


def examples():
    """The page with all lines outside examples blank, so that line numbers in failures are those of the page."""
    lines, inside = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        inside = line == "```pycon" if fence else inside
        lines.append(line if inside and not fence else "")
    return "\n".join(lines) + "\n"


def test_examples_run_as_printed():
    test = doctest.DocTestParser().get_doctest(examples(), {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 75, "the blocks must have been found"
    result = doctest.DocTestRunner(verbose=False).run(test)
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_the_page_leads_to_every_module(name):
    """Their docstrings are the reference: tests/slow/test_docs_site.py checks that the site shows every function."""
    module = importlib.import_module(f"prism_jax.decision.{name}")
    page = PAGE.read_text(encoding="utf-8")
    assert f"[{name}](../{pathlib.Path(module.__file__).relative_to(PAGE.parents[1])})" in page
    assert f"\n## {name}\n" in page


def exported(name):
    """Public names of a module: those in `__all__`, or if there is none, those that it defines, constants included."""
    module = importlib.import_module(f"prism_jax.decision.{name}")
    if hasattr(module, "__all__"):
        return {public: getattr(module, public) for public in module.__all__}
    defined = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return {public: getattr(module, public) for public in defined if not public.startswith("_")}


def test_every_public_name_has_one_door():
    """Each object is exported by one module only; different objects may have one name, such as `decide`."""
    doors = {}
    for door in DOORS:
        for name, value in exported(door).items():
            doors.setdefault((name, id(value)), set()).add(door)
    assert len(doors) > 100, "the names must have been found"
    assert {name: found for (name, _), found in doors.items() if len(found) > 1} == {}


def test_every_policy_of_the_gate_has_its_row():
    from prism_jax.decision.policies import POLICIES

    page = (PAGE.parent / "maths.md").read_text(encoding="utf-8")
    for policy in POLICIES:
        assert re.search(rf"^\| [^|]*`{policy}`", page, re.MULTILINE), policy


def test_every_paper_form_is_among_the_departures():
    departures = PAGE.read_text(encoding="utf-8").split("## Departures from the paper")[-1]
    forms = set()
    for path in (pathlib.Path(__file__).parents[2] / "prism_jax" / "decision").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_paper"):
                forms.add(node.name)
    assert len(forms) >= 3
    assert not [form for form in forms if f"`{form}`" not in departures and f"{form}`" not in departures]
