"""The ProactiveBench study: splits do not overlap, it resumes after an interruption, and it reports every method."""

import dataclasses
import json
import runpy

import numpy as np
import pytest
import tiny_study
from etils import epath

from prism_jax.experiments import proactivebench as module
from prism_jax.experiments import proactivebench_results as results
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.scores import read_scores
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.sources import load_splits
from prism_jax.training.run_config import RunConfig


@pytest.fixture
def trainings(monkeypatch):
    """The folders of all trainings; training is replaced by a function that writes a run's files."""
    folders = []

    def run(config, workdir):
        folder = workdir.path
        folders.append("/".join(folder.parts[-2:]))
        tiny_study.stand_in(config, folder)

    monkeypatch.setattr("prism_jax.runs.pipeline.train_and_evaluate", run)
    return folders


def test_a_study_trains_each_fold_once_and_a_repeated_study_trains_nothing(tmp_path, trainings):
    config, tiny = tiny_study.configs(tmp_path)
    workdir = epath.Path(tmp_path / "study")
    found = module.study(config, tiny, workdir, resamples=50)
    assert trainings == [f"{name}/fold{fold}" for fold in (0, 1) for name in ("student", "tiny")]
    before = (workdir / "results.json").read_bytes(), (workdir / "scores.parquet").read_bytes()
    (workdir / "student" / "fold1" / "scores.parquet").unlink()  # as if the study had been interrupted here
    trainings.clear()
    module.study(config, tiny, workdir, resamples=50)
    assert trainings == ["student/fold1"]
    assert ((workdir / "results.json").read_bytes(), (workdir / "scores.parquet").read_bytes()) == before
    assert json.loads(before[0])["parts"] == json.loads(json.dumps(found["parts"]))
    text = "\n".join(table.to_markdown() for table in results.tables(found))
    for name in results.NAMES.values():
        assert f"| {name} |" in text


def test_every_stream_is_scored_once_by_a_fold_that_never_trained_on_it(tmp_path, trainings):
    config, tiny = tiny_study.configs(tmp_path)
    module.study(config, tiny, epath.Path(tmp_path / "study"), resamples=50)
    scores = read_scores(tmp_path / "study" / "scores.parquet")
    assert set(scores.stream) == {stream.id for stream in read_streams(config.data.source)}
    for fold in (0, 1):
        splits = load_splits(dataclasses.replace(config.data, fold=fold), config.simulator)
        tested = set(scores.stream[scores.fold == fold])
        assert tested == {stream.id for stream in splits.test}
        assert not tested & {stream.id for stream in (*splits.train, *splits.calibration)}


def test_selection_never_sees_fold_zeros_test_streams(tmp_path, trainings):
    config, _ = tiny_study.configs(tmp_path)
    candidates = {"base": module.TrainingChoice(), "hard labels": module.TrainingChoice(soft_labels=False)}
    workdir = epath.Path(tmp_path / "study")
    selection = module.select(config, candidates, workdir)
    inner = {stream.id for stream in read_streams(workdir / "inner.jsonl")}
    splits = load_splits(config.data, config.simulator)
    assert inner == {stream.id for stream in (*splits.train, *splits.calibration)}
    assert not inner & {stream.id for stream in splits.test}
    assert trainings == ["select/base", "select/hard_labels"]
    assert selection["best"] in candidates
    for found in selection["candidates"].values():
        four = [found[f"{signal} {name}"] for signal in ("accept", "need") for name in ("auroc", "auroc_within")]
        assert found["mean"] == pytest.approx(np.mean(four))
    assert json.loads((workdir / "selection.json").read_text()) == selection
    module.select(config, candidates, workdir)
    assert len(trainings) == 2


def test_a_finished_fold_of_another_config_is_refused(tmp_path, trainings):
    config, _ = tiny_study.configs(tmp_path)
    folder = epath.Path(tmp_path / "fold0")
    module.trained_fold(config, folder)
    other = dataclasses.replace(config, training=dataclasses.replace(config.training, learning_rate=0.5))
    with pytest.raises(ConfigError, match=r"config\.training\.learning_rate: found .*, expected 0\.5"):
        module.trained_fold(other, folder)


def test_at_most_eight_candidates_and_the_config_is_one_of_them(root):
    names = runpy.run_path(str(root / "configs" / "smollm2_proactivebench.py"))
    config = from_config_dict(RunConfig, names["get_config"]())
    assert len(module.CANDIDATES) <= 8
    assert config in [choice.apply(config) for choice in module.CANDIDATES.values()]


def test_epochs_are_whole_and_cut_at_their_ends(tmp_path):
    (tmp_path / "timings.jsonl").write_text("".join(f'{{"step": {i}, "seconds": {i}.0}}\n' for i in range(1, 9)))
    assert results.epoch_seconds(epath.Path(tmp_path), 3.0) == (1 + 2 + 3, 4 + 5 + 6)
    assert results.epoch_seconds(epath.Path(tmp_path), 2.5) == (1 + 2, 3 + 4 + 5, 6 + 7 + 8)
