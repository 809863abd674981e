"""A student is evaluated straight from its weights, into a folder of its own or beside the trained one."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tiny
from etils import epath

from prism_jax.evaluation.rows import SignalRow
from prism_jax.runs.export import export_run
from prism_jax.runs.pipeline import evaluate_untrained, evaluate_workdir, too_sure, train_and_evaluate
from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.scores import read_scores
from prism_jax.streams.sources import DataConfig
from prism_jax.training.workdir import Workdir

CONFIG = dataclasses.replace(
    tiny.CONFIG,
    data=DataConfig(train_streams=12, calibration_streams=12, test_streams=6),
    training=dataclasses.replace(tiny.CONFIG.training, steps=2, batch=4, learning_rate=1e-2, checkpoint_every=1),
)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """A student evaluated without training."""
    folder = epath.Path(tmp_path_factory.mktemp("runs")) / "untrained"
    evaluate_untrained(CONFIG, Workdir(folder))
    return folder


@pytest.fixture(scope="module")
def folder(untrained):
    """The folder of that student, and of one that was evaluated and then trained in the same folder."""
    both = Workdir(untrained.parent / "both")
    evaluate_untrained(CONFIG, both)
    train_and_evaluate(CONFIG, both, report=False)
    return untrained.parent


@pytest.mark.slow
def test_the_tables_say_that_the_student_is_not_trained(untrained):
    tree = json.loads((untrained / "evaluation.json").read_text())
    assert tree["population"] == "student without training"
    page = (untrained / "report.html").read_text()
    assert "How well the signals are calibrated, student without training" in page
    assert "without training: random, seed 0" in page
    names = {path.name for path in untrained.iterdir()}
    assert not names & {"checkpoints", "metrics.jsonl"}
    assert {"config.json", "tokenizer.json", "scores.parquet", "calibration.json"} <= names


@pytest.mark.slow
def test_an_older_checkpoint_is_not_taken_for_the_trained_result(folder, tmp_path, capsys):
    """The newest of two is damaged: the evaluation of the trained result stays, and the tables say what they show."""
    run = epath.Path(shutil.copytree(folder / "both", tmp_path / "run"))
    next((run / "checkpoints" / "2" / "state" / "d").iterdir()).write_bytes(b"")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert evaluate_workdir(run) == 3
    printed = capsys.readouterr().out
    assert printed.startswith("checkpoint: step 1, which is not the trained result: step 2 is damaged\n")
    assert "step 1, not the trained result" in printed
    assert f"kept: {run / 'evaluation.json'} of an earlier evaluation" in printed
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    (run / "evaluation.json").unlink()
    assert evaluate_workdir(run) == 3
    assert json.loads((run / "evaluation.json").read_text())["population"] == "step 1, not the trained result"
    words, is_trained = export_run(run, epath.Path(tmp_path / "exported"))
    assert words.startswith("step 1, which is not the trained result: step 2 is damaged, SHA-256 of digests.json: ")
    assert not is_trained


@pytest.mark.slow
def test_training_of_the_same_config_may_begin_in_the_folder(folder):
    untrained, trained = (read_scores(folder / name / "scores.parquet") for name in ("untrained", "both"))
    assert np.abs(untrained.p_need_fast - trained.p_need_fast).max() > 1e-3
    assert json.loads((folder / "both" / "evaluation.json").read_text())["population"] == ""
    with pytest.raises(ConfigError, match=r"both/checkpoints: found a trained run, expected .* --base`"):
        evaluate_untrained(CONFIG, Workdir(folder / "both"))
    other = dataclasses.replace(CONFIG, training=dataclasses.replace(CONFIG.training, batch=2))
    with pytest.raises(ConfigError, match=r"config\.training\.batch: found 4, expected 2"):
        evaluate_untrained(other, Workdir(folder / "untrained"))


@pytest.mark.slow
def test_a_trained_run_shows_its_base_beside_it(folder, capsys):
    evaluate_workdir(folder / "both", base=True)
    tree = json.loads((folder / "both" / "evaluation.json").read_text())
    alone = json.loads((folder / "untrained" / "evaluation.json").read_text())
    base = tree.pop("base")
    assert {**base, "population": alone["population"]} == alone
    shown = capsys.readouterr().out
    assert shown.count("Before training") == 4  # costs, their intervals, rates, cost ratios
    assert shown.count("before training: fast, calibrated") == 2  # need and acceptance
    evaluate_workdir(folder / "both")
    assert json.loads((folder / "both" / "evaluation.json").read_text()) == tree
    assert "Before training" not in capsys.readouterr().out


def test_a_student_that_is_far_too_sure_gets_a_line():
    def row(temperature, signal="accept"):
        made = object.__new__(SignalRow)
        vars(made).update(signal=signal, thinking="fast", temperature=temperature)
        return made

    assert [*too_sure([row(1.0), row(3.0), row(None)])] == []
    (line,) = too_sure([row(1.0, "need"), row(20.0)])
    assert line.startswith("p_accept, fast: T = 20.0, above 3: the student is far surer than it is right")
