"""Benchmarks are run by hand; here it shows that they still fit the package."""

import dataclasses
import importlib
import pathlib
import re

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
    monkeypatch.setattr(student, "TRAINING", dataclasses.replace(student.TRAINING, learning_rate=0.3))
    model, params = student.make_model(1)
    (row,) = student.benchmark_train(model, params, 3)
    first, last, apart = re.search(r"losses ([\d.]+) to ([\d.]+), (\S+) apart", row.note).groups()
    assert float(last) < float(first)
    assert float(apart) < 1e-4


def test_the_gpu_benchmark_trains_by_the_papers_recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    training = importlib.import_module("accelerator").recipe()
    assert (training.master, training.second_moment, training.learning_rate) == ("split", "factored", 1e-5)
    assert (training.steps, training.epochs) == (1000, 0.0)
