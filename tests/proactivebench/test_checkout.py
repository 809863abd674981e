"""The benchmark's own files become streams without answers, and nothing of the test is trained on."""

from __future__ import annotations

import json

import forked
import pytest
from etils import epath
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.experiments.miniature import Checkout
from prism_jax.proactivebench.checkout import events_of, streams_of
from prism_jax.streams.jsonl import StreamError, read_streams
from prism_jax.streams.simulator import simulate
from prism_jax.streams.simulator_config import SimulatorConfig


@pytest.fixture(scope="module")
def miniature(tmp_path_factory):
    drawn = [simulate(SimulatorConfig(), index, "always") for index in range(40)]
    checkout = Checkout(epath.Path(tmp_path_factory.mktemp("checkout")))
    checkout.write(drawn[:24], drawn[24:])
    return checkout, drawn


def data(checkout):
    return {domain: [str(path)] for domain, path in checkout.agent_data().items()}


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))


def test_a_miniature_becomes_four_files(miniature, own_cache, tmp_path):
    checkout, drawn = miniature
    files = (f"--agent_data={domain}={path}" for domain, path in checkout.agent_data().items())
    where = (f"--source={checkout.folder}", f"--workdir={tmp_path / 'streams'}", "--calibration_share=0.25")
    done = forked.run("prism_jax", "import", "--from=proactivebench", *where, *files)
    assert done.returncode == 0, done.stderr
    names = ("train", "calibration", "test", "human")
    lines = [line for line in done.stdout.splitlines() if ".jsonl:" in line]  # TFDS prints some of its own
    assert [line.partition(".jsonl:")[0].rpartition("/")[2] for line in lines] == [*names]
    read = {name: read_streams(tmp_path / "streams" / f"{name}.jsonl") for name in names[:3]}
    assert len(read["calibration"]) == 6 and len(read["train"]) == 18
    assert {stream.domain for stream in read["train"]} == {"coding", "writing", "life"}
    assert len(read["test"]) == sum(stream.domain != "life" for stream in drawn[24:])
    for streams in read.values():
        for stream in streams:
            assert [step.event for step in stream.steps] == list(range(len(stream.events)))
            assert all(event.time_text for event in stream.events)
            (offers,) = {step.candidates for step in stream.steps}
            assert [(offer.text, offer.proposal, offer.y_accept) for offer in offers] == [(None, None, None)]
    texts = {tuple(event.text for event in stream.events) for stream in drawn[:24]}
    assert {tuple(event.text for event in stream.events) for stream in read["train"] + read["calibration"]} == texts
    human = read_streams(tmp_path / "streams" / "human.jsonl")
    assert {stream.id for stream in human} == {stream.id for stream in read["test"]}
    assert all(offer.votes for stream in human for step in stream.steps for offer in step.candidates)


def test_a_test_stream_among_the_training_data_is_refused(miniature, own_cache, tmp_path):
    _, drawn = miniature
    test = next(stream for stream in drawn[24:] if stream.domain == "coding")
    leaking = Checkout(epath.Path(tmp_path / "leaking"))
    leaking.write([*drawn[:24], test], drawn[24:])
    with pytest.raises(StreamError, match="found the events of the test stream code_"):
        streams_of(leaking.folder, data(leaking), 0.1)


def test_one_stream_in_two_files_is_refused(miniature, own_cache):
    checkout, _ = miniature
    twice = {"coding": [str(checkout.agent_data()["coding"])], "other": [str(checkout.agent_data()["coding"])]}
    with pytest.raises(StreamError, match="again, expected each in one file of agent data"):
        streams_of(checkout.folder, twice, 0.1)


def test_a_folder_without_test_events_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found no stream NAME\.json there"):
        events_of(tmp_path)


@needs_checkout
def test_the_real_test_events_have_a_step_each():
    streams = events_of(CHECKOUT)
    named = json.loads((CHECKOUT / "dataset" / "test_data" / "splits.json").read_text())["real_average"]["files"]
    assert {f"{stream.id}.json" for stream in streams} <= {*named}
    assert {stream.domain for stream in streams} == {"coding", "writing"}
    assert all(len(stream.steps) == len(stream.events) for stream in streams)
