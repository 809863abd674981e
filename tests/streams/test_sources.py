"""Loading the streams of a run, and the error for a missing source."""

import re

import pytest

from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.sources import DataConfig, load_splits


@pytest.mark.parametrize(("source", "expected"), [("", None), ("here", "here")])
def test_an_empty_source_means_the_official_archive(tmp_path, monkeypatch, source, expected):
    seen = []

    def load(given, *, need):
        seen.append((given, need))
        return [simulate(SimulatorConfig(), index) for index in range(12)]

    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("prism_jax.streams.proactivebench.load", load)
    splits = load_splits(DataConfig(name="proactivebench", source=source, need="majority"), SimulatorConfig())
    assert seen == [(expected, "majority")]
    assert len(splits.train) + len(splits.calibration) + len(splits.test) == 12


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_source_that_is_no_directory_says_what_it_should_hold(tmp_path, kind):
    source = tmp_path / "source"
    if kind == "file":
        source.write_text("")
    message = (
        f"{source}: found no such directory, expected in --config.data.source the layout of the repository "
        "thunlp/ProactiveAgent (dataset/reward_data/train_data.jsonl, dataset/reward_data/test_data.jsonl and the "
        "folder dataset/test_data); --config.data.source= (empty) downloads the official archive"
    )
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        load_splits(DataConfig(name="proactivebench", source=str(source)), SimulatorConfig())
