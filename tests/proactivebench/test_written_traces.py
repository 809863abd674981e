"""From what a student wrote and its scores to traces of what the deployed policy did, by hand-made probabilities."""

import dataclasses
import json

import pytest
from judged_streams import vote_on
from official_reference import judged_as_published, scored_as_published
from test_official_scores import GIVEN, accepts

from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import Calibration, SignalFit, write_calibration
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.votes import write_votes
from prism_jax.proactivebench.published import read_published
from prism_jax.proactivebench.scoring import score_official
from prism_jax.proactivebench.traces import export_written
from prism_jax.scores import Scores, write_scores
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.traces import ABSENT, read_traces, trace_stream
from prism_jax.streams.types import TASK

# What was written, p_accept of both passes, and what the margin policy at C_FA = C_FN = 1 and p_need = 1 says: speak
# from p_accept = 0.5 on, by the slow pass within 0.1 of it.
STEPS = (
    ("Run the tests", 0.9, 0.1, ["Run the tests"]),
    ("Draft a reply", 0.1, 0.9, []),
    ("Look it up", 0.45, 0.8, ["Look it up"]),
    ("Tidy up", 0.55, 0.2, []),
    ("None", 0.9, 0.9, []),
)
NAMES = ("code_1", "writing_1")


def written(name):
    """A stream with an event that nobody decided about, then one per step."""
    steps = tuple(
        Step(
            event=number,
            candidates=(
                Candidate(
                    proposal=None if task == "None" else f"{task} of {name}",
                    response=json.dumps(dict.fromkeys(RESPONSE_KEYS, "why") | {TASK: task}),
                ),
            ),
        )
        for number, (task, *_) in enumerate(STEPS, start=1)
    )
    times = [60.0 * number for number in range(len(STEPS) + 1)]
    events = (
        Event(time=time, text=f"{name} {time}", time_text=f"2024-01-01 00:0{time / 60:.0f}:00.5") for time in times
    )
    return Stream(id=name, events=tuple(events), steps=steps)


@pytest.fixture
def folder(tmp_path):
    write_streams(tmp_path / "written.jsonl", map(written, NAMES))
    rows = [
        {"stream": name, "step": step, "split": "test", "p_need_fast": 1.0, "p_accept_fast": fast, "y_need": None}
        | {"p_need_slow": 1.0, "p_accept_slow": slow, "tokens_slow": 1}
        for name in (*NAMES, "of the calibration")
        for step, (_, fast, slow, _) in enumerate(STEPS)
    ]
    write_scores(tmp_path / "scores.parquet", Scores.from_rows(rows))
    fit = SignalFit(Temperature(1.0), 0.5, 10, 10.0)
    write_calibration(
        tmp_path / "calibration.json", Calibration(fit, dataclasses.replace(fit, offer_rate=0.5), fit, fit)
    )
    point = OperatingPoint(c_fn=1.0, trigger="margin")
    (tmp_path / "evaluation.json").write_text(json.dumps({"point": dataclasses.asdict(point)}))
    return tmp_path


def export(folder, **changes):
    files = {"written": "written.jsonl", "scores": "scores.parquet", "calibration": "calibration.json"} | changes
    (folder / "traces").mkdir(exist_ok=True)
    return export_written(*(str(folder / file) for file in files.values()), folder / "traces" / "ours")


def test_the_policys_decision_says_whether_the_text_was_said(folder):
    export(folder)
    traces = read_traces(folder / "traces" / "ours")
    assert list(traces) == list(NAMES)
    for name, (first, *rest) in traces.items():
        assert first.answer is ABSENT
        for event, (_, fast, slow, said) in zip(rest, STEPS, strict=True):
            assert event.answer == [f"{text} of {name}" for text in said]
            spoke = (slow if abs(fast - 0.5) <= 0.1 else fast) >= 0.5
            expected = {"Purpose": "why", "Thoughts": "why", "Response": "why"} if spoke else None
            assert event.response_fields == expected
        assert [event.time for event in (first, *rest)] == [event.time_text for event in written(name).events]


def test_the_published_script_and_ours_score_them_alike(folder):
    export(folder)
    traces = read_traces(folder / "traces" / "ours")
    asked = [one for name in NAMES for one in questions(trace_stream(name, traces[name]), 40)]
    write_votes(folder / "votes.jsonl", [vote_on(one, "strict", accepts(one)) for one in asked])
    places = {"traces": str(folder / "traces"), "workdir": str(folder / "out")}
    score_official({**GIVEN, **places, "votes": str(folder / "votes.jsonl"), "judges": ["strict"]})
    verdicts = {(one.stream, one.step, one.candidate): accepts(one) for one in asked}
    judged = []
    for name in NAMES:
        items = json.loads((folder / "traces" / "ours" / f"{name}.json").read_text())
        # The first event has no answer, so that the steps of the judged streams begin with the second one.
        judged += judged_as_published(
            items, lambda i, one, name=name: verdicts[name, i - 1, None if one is None else 0]
        )
    rates, counts = scored_as_published(judged)
    (row,) = read_published(folder / "out" / "official" / "ours.csv")
    assert row.rates == rates and sum(counts) == 2 * len(STEPS)


def test_what_does_not_belong_together_is_named(folder):
    other = dataclasses.replace(written("code_2"), id="code_2")
    write_streams(folder / "other.jsonl", [other])
    with pytest.raises(ValueError, match=r"--scores: .*scores.parquet: found no row of the streams of --written"):
        export(folder, written="other.jsonl")
    write_streams(folder / "more.jsonl", [written("code_1"), other])
    with pytest.raises(ValueError, match="--scores: stream 'code_2', step 0: found no row of its candidates"):
        export(folder, written="more.jsonl")
    bare = dataclasses.replace(written("code_1"), steps=tuple(Step(event=step.event) for step in other.steps))
    write_streams(folder / "bare.jsonl", [bare])
    with pytest.raises(ValueError, match="--written: stream 'code_1', step 0: found no response, expected what"):
        export(folder, written="bare.jsonl")
    (folder / "evaluation.json").write_text("{}")
    with pytest.raises(ValueError, match=r"evaluation.json: point: found None, expected the operating point"):
        export(folder)
    assert not list((folder / "traces").iterdir())
