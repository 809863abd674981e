"""From a run on unlabelled calibration and test streams to verdicts on its own texts, a calibration and traces."""

import dataclasses
import json

import numpy as np
import pytest
import tiny
from etils import epath
from judged_streams import panel_of, vote_on
from test_score_command import run as score

from prism_jax.agent.exported import read_exported
from prism_jax.commands.judging import judge
from prism_jax.decision.calibration import OF_SCORES, CalibrationConfig, Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.fits import read_calibration
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.votes import write_votes
from prism_jax.proactivebench.traces import export_written
from prism_jax.runs.export import export_run
from prism_jax.runs.pipeline import train_and_evaluate
from prism_jax.runs.scores_files import evaluate_scores
from prism_jax.scores import read_scores
from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.shards import read_files
from prism_jax.streams.traces import ABSENT
from prism_jax.student.prompting.template import WritingConfig
from prism_jax.training import run as runs
from prism_jax.training.run import reopen_run
from prism_jax.training.workdir import Workdir

pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c")
PANEL = panel_of(*NAMES)
FLAGS = {
    **{"human": None, "against": [], "baseline": None, "dry_run": False, "ask": False, "resamples": 10},
    **{"c_fa": 1.0, "c_fn": 2.0, "out": None, "system": []},
}
CONFIG = dataclasses.replace(
    tiny.with_training(steps=2, checkpoint_every=2),
    writing=WritingConfig(field_tokens=2, response_tokens=2, reread=True),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run that was trained and scored without labels on calibration and test streams."""
    folder = epath.Path(tmp_path_factory.mktemp("unlabelled"))
    load = runs.load_splits

    def unlabelled(*arguments):
        splits = load(*arguments)
        bare = {name: tuple(map(without_answers, getattr(splits, name))) for name in ("calibration", "test")}
        return dataclasses.replace(splits, **bare)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "load_splits", unlabelled)
        train_and_evaluate(CONFIG, Workdir(folder / "run"))
        splits = reopen_run(Workdir(folder / "run")).splits
    write_streams(folder / "test.jsonl", splits.test)
    return folder


def accepts(question):
    return int(question.digest, 16) % 3 > 0


@pytest.fixture(scope="module")
def evaluated(place):
    """The same with verdicts on its texts, judged scores, and an evaluation."""
    streams = read_files(str(place / "run" / "written_*.jsonl"))
    asked = [question for stream in streams for question in questions(stream, 40)]
    votes = [
        vote_on(one, judge, accepts(one) != (judge == "c"))
        for one in asked[1:]  # nobody answered the first question, about silence
        for judge in NAMES
    ]
    write_votes(place / "votes.jsonl", votes)
    files = {"streams": "run/written_*.jsonl", "votes": "votes.jsonl", "scores": "run/scores.parquet"}
    files = {name: str(place / file) for name, file in files.items()}
    judge(PANEL, {**FLAGS, **files, "scores_out": str(place / "judged.parquet")})
    scores = read_scores(place / "judged.parquet")
    fits, steps = protocol.calibrate(scores, CalibrationConfig(OF_SCORES)), splits.rows_of(scores, "test").steps()
    need, accept = (fits.calibrated(signal, "fast", steps) for signal in ("need", "accept"))
    c_fn = float(np.median((1 - accept) / (accept * need)))  # at which half of the steps are offers
    evaluate_scores(str(place / "judged.parquet"), place / "evaluated", OperatingPoint(c_fn=c_fn))
    return place


def test_a_run_without_labels_ends_with_scores_and_what_it_wrote(place):
    run = place / "run"
    names = {path.name for path in run.iterdir()}
    assert {"scores.parquet", "written_calibration.jsonl", "written_test.jsonl"} <= names
    assert not names & {"calibration.json", "evaluation.json", "report.html"}
    scores = read_scores(run / "scores.parquet")
    assert np.isnan(scores.y_need).all() and np.isnan(scores.y_accept).all()
    written = read_streams(run / "written_test.jsonl")
    offers = [offer for stream in written for step in stream.steps for offer in step.candidates]
    assert len(offers) == (scores.split == "test").sum()
    for offer in offers:
        response = json.loads(offer.response)
        assert tuple(response) == RESPONSE_KEYS and offer.text is None
        assert offer.proposal == response["Proactive Task"]
    assert not np.isnan(scores.p_accept_written).any()
    assert [stream.events for stream in written] == [stream.events for stream in read_streams(place / "test.jsonl")]


def test_labels_are_the_panels_on_the_students_own_texts(evaluated):
    judged, raw = (read_scores(evaluated / name) for name in ("judged.parquet", "run/scores.parquet"))
    for name, column in raw.columns().items():
        if name not in ("y_need", "y_accept", "votes", "logged", "propensity"):
            np.testing.assert_array_equal(getattr(judged, name), column, name)
    streams = {stream.id: stream for stream in read_files(str(evaluated / "run" / "written_*.jsonl"))}
    for row, (name, step) in enumerate(zip(judged.stream, judged.step, strict=True)):
        silence, offer = (one for one in questions(streams[name], 40) if one.step == step)
        assert judged.y_accept[row] == accepts(offer)
        assert judged.votes[row] == (accepts(offer), accepts(offer), not accepts(offer))
        assert (judged.logged[row], judged.propensity[row]) == (1, 1)
        if row:
            assert judged.y_need[row] == 1 - accepts(silence)
    assert np.isnan(judged.y_need[0]) and 0 < judged.y_accept.mean() < 1


def test_the_export_says_that_it_is_not_calibrated_or_takes_over_a_calibration(evaluated, tmp_path):
    run = Workdir(evaluated / "run")
    words, _ = export_run(run.path, epath.Path(tmp_path / "raw"))
    assert "not calibrated (all temperatures are 1)" in words
    raw = read_exported(tmp_path / "raw")
    assert set(raw.maps.values()) == {Temperature(1.0)} and raw.writes_responses
    path = evaluated / "evaluated" / "calibration.json"
    words, _ = export_run(run.path, epath.Path(tmp_path / "calibrated"), calibration=path)
    assert "not calibrated" not in words
    maps = read_exported(tmp_path / "calibrated").maps
    fits = read_calibration(path)
    assert maps["accept_fast"] == fits.accept_fast.map and maps["need_fast"] == fits.need_fast.map
    assert maps["accept_fast"] != Temperature(1.0)


def test_score_of_such_a_run_is_what_its_own_evaluation_kept(place, tmp_path):
    score(place / "run", place / "test.jsonl", tmp_path / "out", shard=99, batch=4)
    assert read_streams(tmp_path / "out" / "written-00000.jsonl") == read_streams(place / "run" / "written_test.jsonl")
    own = read_scores(place / "run" / "scores.parquet")
    again = read_scores(tmp_path / "out" / "scores-00000.parquet")
    np.testing.assert_allclose(again.p_accept_written, own.p_accept_written[own.split == "test"], atol=1e-6)


def test_traces_of_what_it_wrote_are_those_of_the_evaluation(evaluated, tmp_path):
    judged, calibration = str(evaluated / "judged.parquet"), str(evaluated / "evaluated" / "calibration.json")
    traces = export_written(str(evaluated / "run" / "written_test.jsonl"), judged, calibration, tmp_path / "traces")
    spoken = [bool(event.answer) for trace in traces.values() for event in trace if event.answer is not ABSENT]
    report = json.loads((evaluated / "evaluated" / "evaluation.json").read_text())
    (row,) = [row for row in report["policies"] if row["deployed"]]
    assert np.mean(spoken) == pytest.approx(row["speak_rate"]) and 0.3 < np.mean(spoken) < 0.7
