"""Loading the streams of a run, and the error for a missing source."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.sources import MOST_STREAMS, SIMULATED, DataConfig, load_splits, simulated_index


@pytest.mark.parametrize(("source", "expected"), [("", None), ("here", "here")])
def test_an_empty_source_means_the_official_archive(tmp_path, monkeypatch, source, expected):
    seen = []

    def load(given, *, need, candidates):
        seen.append((given, need, candidates))
        return [simulate(SimulatorConfig(), index) for index in range(12)]

    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("prism_jax.streams.proactivebench.load", load)
    data = DataConfig(name="proactivebench", source=source, need="majority", candidates="constant")
    splits = load_splits(data, SimulatorConfig())
    assert seen == [(expected, "majority", "constant")]
    assert len(splits.train) + len(splits.calibration) + len(splits.test) == 12


@pytest.mark.parametrize("name", ["simulator", "jsonl"])
def test_constant_offers_need_judgements_of_every_offer(name):
    with pytest.raises(
        ValueError, match=rf"^candidates: found 'constant' with name = '{name}', expected 'listed': only"
    ):
        DataConfig(name=name, source="x.jsonl", candidates="constant")


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


def test_a_simulated_split_does_not_depend_on_the_sizes_of_the_others():
    def load(*sizes):
        names = ("train_streams", "calibration_streams", "test_streams")
        return load_splits(DataConfig(**dict(zip(names, sizes, strict=True))), SimulatorConfig())

    small, large = load(3, 4, 5), load(7, 9, 8)
    for split in SIMULATED:
        streams = getattr(small, split)
        assert streams == getattr(large, split)[: len(streams)]


def test_the_default_sizes_of_the_quickstart_draw_one_range_of_streams():
    """The student's test streams have the numbers from 13,700 on, whatever it was trained on."""
    assert [simulated_index(split, 0) for split in SIMULATED] == [0, 13_200, 13_700]
    assert simulated_index("train", 13_199) + 1 == simulated_index("calibration", 0)
    assert simulated_index("calibration", 499) + 1 == simulated_index("test", 0)


@given(*[st.tuples(st.sampled_from(sorted(SIMULATED)), st.integers(0, MOST_STREAMS - 1))] * 2)
def test_no_two_places_draw_the_same_simulated_stream(one, other):
    assert (simulated_index(*one) == simulated_index(*other)) == (one == other)


def test_a_split_that_would_reach_into_another_is_refused():
    with pytest.raises(ValueError, match="test_streams: found 1000000001, expected at most 1000000000"):
        DataConfig(test_streams=MOST_STREAMS + 1)
