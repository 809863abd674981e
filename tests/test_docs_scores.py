"""The page on the scores file: its example can be read, its code runs, and its table matches the schema."""

import doctest
import pathlib
import re
import shlex

import forked
import pytest

from prism_jax.scores import read_scores
from prism_jax.scores.schema import COLUMNS, REQUIRED

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "scores.md"


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder that contains the page's example."""
    (example,) = blocks("json")
    (tmp_path / "scores.jsonl").write_text(example, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_is_a_scores_file(folder):
    scores = read_scores("scores.jsonl")
    assert len(scores) == 10
    assert set(scores.split) == {"calibration", "test"}
    assert scores.steps().candidate.tolist().count(1) == 1


def test_the_python_prints_what_the_page_says(folder):
    test = doctest.DocTestParser().get_doctest("\n".join(blocks("pycon")), {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 20, "the blocks must have been found"
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


@pytest.mark.slow
def test_the_command_evaluates_the_example(folder):
    (command,) = blocks("sh")
    python, flag, *arguments = shlex.split(command)
    assert (python, flag) == ("python", "-m")
    done = forked.run(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "4 test steps of 2 streams, 3 judged and 1 masked" in done.stdout
    assert {path.name for path in (folder / "out").iterdir()} == {
        "calibration.json",
        "evaluation.json",
        "gate.json",
        "report.html",
    }


def test_the_table_has_every_column_with_its_type():
    kinds = {
        "text": "text",
        "index": "integer ≥ 0",
        "count": "integer ≥ 0",
        "flag": "true, false",
        "time": "number",
        "label": "label",
        "votes": "list of true and false",
    }
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, *_ in rows] == list(COLUMNS)
    for name, kind, meaning, without in rows:
        column = COLUMNS[name]
        words = (
            (kinds[column.kind],)
            if column.kind != "unit"
            else ("probability", "label", "number in (0, 1]", "number in [0, 1]")
        )
        assert kind.startswith(words)
        assert kind.endswith("null") == column.nullable
        assert (without == "required") == (name in REQUIRED)
        if column.constant_within != "row":
            assert name == "stream" or f"constant within a {column.constant_within}" in meaning, name
