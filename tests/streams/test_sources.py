"""Loading the streams of a run, and the error for a missing source."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.sources import MOST_STREAMS, SIMULATED, SOURCES, DataConfig, load_splits, simulated_index


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


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_source_that_is_no_directory_says_what_it_should_hold(tmp_path, kind):
    source = tmp_path / "source"
    if kind == "file":
        source.write_text("")
    layout = "the layout of the repository thunlp/ProactiveAgent .*; --config.data.source= .* downloads the official"
    with pytest.raises(FileNotFoundError, match=f"^{source}: found no such directory, expected in .*source {layout}"):
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


@pytest.fixture
def three(tmp_path):
    """One file of streams for each split, and the sources that name them."""
    for number, name in enumerate(SOURCES):
        streams = [simulate(SimulatorConfig(), index) for index in range(4 * number, 4 * number + 4)]
        write_streams(tmp_path / f"{name}.jsonl", streams[::-1])
    return {name: str(tmp_path / f"{name}.jsonl") for name in SOURCES}


def test_each_split_may_have_its_own_file(three):
    splits = load_splits(DataConfig(name="jsonl", validation=0.5, **three), SimulatorConfig())
    ids = {name: [stream.id for stream in getattr(splits, name)] for name in ("calibration", "test")}
    assert ids == {"calibration": [f"sim-0-{i}" for i in range(4, 8)], "test": [f"sim-0-{i}" for i in (10, 11, 8, 9)]}
    training = {stream.id for stream in (*splits.train, *splits.validation)}
    assert training == {f"sim-0-{i}" for i in range(4)}
    assert len(splits.train) == len(splits.validation) == 2
    assert set(DataConfig(name="jsonl", **three).paths) == set(three.values())


def test_a_stream_in_two_files_is_an_error_that_names_it(three):
    write_streams(three["test_source"], [simulate(SimulatorConfig(), index) for index in (9, 5)])
    with pytest.raises(ValueError) as error:
        load_splits(DataConfig(name="jsonl", **three), SimulatorConfig())
    found = f"{three['test_source']}: stream 'sim-0-5': found it in {three['calibration_source']} too"
    assert str(error.value) == f"{found}, expected every stream in one split only"


@pytest.mark.parametrize("split", ["calibration", "test"])
def test_curated_streams_are_for_training_only(three, split):
    one, other = (simulate(SimulatorConfig(), number) for number in (20, 21))
    streams = [dataclasses.replace(one, curated="the best"), other]
    write_streams(three["train_source"], streams)
    assert load_splits(DataConfig(name="jsonl", **three), SimulatorConfig()).train[0].curated == "the best"
    write_streams(three["train_source"], streams[1:])
    write_streams(three[f"{split}_source"], streams[:1])
    with pytest.raises(ValueError, match=rf"^{split} split, stream 'sim-0-20': found curated rows \(the best\)"):
        load_splits(DataConfig(name="jsonl", **three), SimulatorConfig())


def test_one_curated_file_for_all_splits_is_an_error_that_says_how_to_give_three(tmp_path):
    path = tmp_path / "curated.jsonl"
    write_streams(path, [dataclasses.replace(simulate(SimulatorConfig(), i), curated="the best") for i in range(12)])
    with pytest.raises(ValueError, match=r"give the curated file as --config\.data\.train_source, and whole "):
        load_splits(DataConfig(name="jsonl", source=str(path)), SimulatorConfig())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "a", "test_source": "b"}, "source: found 'a' beside test_source, expected one file for all splits"),
        ({"test_source": "b"}, "train_source: found none beside test_source, expected a path: each split has its own"),
        ({"train_source": "a", "test_source": "b"}, "calibration_source: found none beside train_source, expected a"),
        ({"name": "simulator", "test_source": "b"}, "test_source: found 'b' with name = 'simulator', expected 'jsonl'"),
        ({"name": "simulator", "source": "b"}, "source: found 'b' with name = 'simulator', expected none, or name = "),
        # Constant offers need judgements of every offer.
        ({"source": "a", "candidates": "constant"}, "candidates: found 'constant' with name = 'jsonl'"),
        ({"name": "simulator", "candidates": "constant"}, "candidates: found 'constant' with name = 'simulator'"),
        # One more stream would be one of another split.
        ({"name": "simulator", "test_streams": MOST_STREAMS + 1}, "test_streams: found 1000000001, expected"),
    ],
)
def test_what_cannot_be_loaded_is_refused(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        DataConfig(**{"name": "jsonl", **given})


def test_a_missing_file_of_one_split_is_named_with_its_key(three, tmp_path):
    three["test_source"] = str(tmp_path / "none.jsonl")
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl: found no such file, expected in .*test_source"):
        load_splits(DataConfig(name="jsonl", **three), SimulatorConfig())
