"""Benchmarks are run by hand; here it shows that they still fit the package."""

import importlib
import pathlib

import pytest

from prism_jax.student import StudentConfig

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_benchmark_finds_what_it_imports(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module(name)
    assert module.__doc__


def test_the_students_step_is_that_of_training(monkeypatch):
    """On a model of a few thousand parameters: the loss falls, on both sides alike."""
    pytest.importorskip("torch", reason="torch is the other side")
    monkeypatch.syspath_prepend(str(FOLDER))
    student = importlib.import_module("student")
    tiny = StudentConfig(vocabulary_size=64, width=16, heads=2, kv_heads=1, head_dim=8, ffn=32, qk_norm=False)
    monkeypatch.setattr(student, "SHAPE", tiny)
    model, params = student.make_model(1)
    rows = list(student.benchmark_train(model, params, 1))
    assert len(rows) == 1
