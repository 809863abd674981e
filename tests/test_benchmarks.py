"""Benchmarks are run by hand; these tests check that they still work with the package."""

import dataclasses
import importlib
import pathlib
import re

import pytest

from prism_jax.student import StudentConfig

pytestmark = pytest.mark.usefixtures("compile_quickly")

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_benchmark_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module(name)
    assert module.__doc__


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Runs benchmarks of the student on a model of a few thousand parameters and returns the note of each row."""
    pytest.importorskip("torch", reason="torch is what the student is compared with")
    monkeypatch.syspath_prepend(str(FOLDER))
    student = importlib.import_module("student")
    monkeypatch.setattr(student, "LIVE", (1, 3))
    monkeypatch.setattr(student, "TRAINING", dataclasses.replace(student.TRAINING, learning_rate=0.3))
    sizes = {"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "mlp_dim": 32}
    assert student.write_weights(str(tmp_path), StudentConfig(vocab_size=64, qk_norm=False, **sizes)) > 1000

    def measure(*names):
        rows = list(student.measure(names, str(tmp_path), threads=2, turns=3))
        assert all(min(row.ours + row.theirs) > 0 for row in rows)
        return {row.name.strip(): row.note for row in rows}

    return measure


def losses(note):
    """The first and the last loss, and how much the two sides differ."""
    return map(float, re.search(r"losses ([\d.]+) to ([\d.]+), (\S+) apart", note).groups())


@pytest.mark.slow
def test_both_sides_of_the_students_benchmark_train_alike(measured):
    first, last, apart = losses(measured("train")["training step, 4 rows of 256 tokens"])
    assert last < first
    assert apart < 1e-4


@pytest.mark.study  # compiles every shape of a live stream
def test_both_sides_of_the_students_benchmark_decide_and_write_alike(measured):
    notes = measured("packed", "decode", "stream", "live")
    first, last, apart = losses(notes["the same 8 rows, row by row, ours too"])
    assert last < first
    assert apart < 1e-4
    assert [notes[f"decode 32 tokens, batch {batch}"] for batch in (1, 8)] == ["same tokens"] * 2
    for name in (
        "a decision on the stream: they read slots",
        "a decision, 1 live streams",
        "a decision, 3 live streams",
    ):
        assert float(re.search(r"logits (\S+) apart", notes[name]).group(1)) < 1e-4


def test_the_gpu_benchmark_trains_by_the_papers_recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    training = importlib.import_module("accelerator").recipe()
    assert (training.master, training.second_moment, training.learning_rate) == ("split", "factored", 1e-5)
    assert (training.steps, training.epochs) == (1000, 0.0)
