"""Scores tables of a panel's verdicts: rows matched with candidates, whose labels take the place of their own."""

import dataclasses

import numpy as np
import pytest
from judged_streams import MOST_EVENTS, bare, labelled, panel_of, vote_on

from prism_jax.commands.judging import judge, judged_scores, teacher_scores
from prism_jax.labelling.judges.ballots import PanelConfig
from prism_jax.labelling.judges.labelling import gather, label_streams
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.votes import write_votes
from prism_jax.scores import Scores, ScoresError, read_scores, write_scores
from prism_jax.streams import Candidate
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.jsonl import StreamError, write_streams
from prism_jax.streams.shards import read_files

NAMES = ("a", "b", "c")
PANEL = panel_of(*NAMES)
FLAGS = {
    **{"human": None, "against": [], "dry_run": False, "ask": False, "resamples": 10},
    **{"c_fa": 1.0, "c_fn": 2.0, "out": None, "system": [], "scores": None, "scores_out": None},
}


@pytest.fixture(scope="module")
def streams():
    """Streams of two offers per step, as judges' users have them."""
    two = (Candidate(proposal="Shall I?"), Candidate(text="Or this?"))
    return [map_steps(one, lambda step: dataclasses.replace(step, candidates=two)) for one in bare(labelled(6))]


@pytest.fixture(scope="module")
def votes(streams):
    """Verdicts of three judges, but none on the first stream's first step."""
    return [
        vote_on(one, judge, bool(int(one.digest, 16) >> place & 1))
        for one in (question for stream in streams for question in questions(stream, MOST_EVENTS))
        if (one.stream, one.step) != (streams[0].id, 0)
        for place, judge in enumerate(NAMES)
    ]


def table(streams, **columns):
    rng = np.random.default_rng(3)
    rows = [
        {"stream": stream.id, "step": number, "candidate": index, "split": "test", "p_need_fast": need}
        | {"p_accept_fast": rng.random(), "y_need": 0.5, "y_accept": 0.25, "votes": [True], "logged": True, **columns}
        for stream in streams
        for number, _ in enumerate(stream.steps)
        for need in [rng.random()]
        for index in (1, 0)  # in any order
    ]
    return Scores.from_rows(rows[::-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, streams, votes):
    folder = tmp_path_factory.mktemp("judged_scores")
    (folder / "written").mkdir()
    write_streams(folder / "written" / "0.jsonl", streams[:4])
    write_streams(folder / "written" / "1.jsonl", streams[4:])
    write_votes(folder / "votes.jsonl", votes)
    write_scores(folder / "scores.parquet", table(streams))
    return folder


def run(folder, **flags):
    judge(PANEL, {**FLAGS, **paths(folder, flags)})


@pytest.mark.parametrize("out", ["out.parquet", "out.jsonl"])
def test_every_row_has_the_panels_label_of_its_candidate(folder, streams, votes, out, capsys):
    run(folder, scores_out=out)
    found, given = read_scores(folder / out), table(streams)
    assert f"scores: {len(given)} rows, {folder / out}" in capsys.readouterr().out
    assert found.p_accept_fast.tolist() == given.p_accept_fast.tolist() and found.split.tolist() == given.split.tolist()
    verdicts = {}
    for vote in votes:
        verdicts.setdefault((vote.stream, vote.step, vote.candidate), []).append(vote.verdict)
    for row, place in enumerate(zip(found.stream, found.step.tolist(), found.candidate.tolist(), strict=True)):
        offer, silence = verdicts.get(place), verdicts.get((*place[:2], None))
        assert (offer is None) == (place[:2] == (streams[0].id, 0))
        if offer is None:
            assert np.isnan([found.y_accept[row], found.y_need[row], found.logged[row], found.propensity[row]]).all()
            assert found.votes[row] == ()
        else:
            assert found.y_accept[row] == (sum(offer) >= 2) and found.y_need[row] == (sum(silence) < 2)
            assert found.votes[row] == tuple(offer)
            assert (found.logged[row], found.propensity[row]) == (1, 1)


def test_what_does_not_fit_is_named_before_judges_are_asked(folder, streams):
    first = streams[0].id
    one = "written/0.jsonl"
    cases = [
        ({"streams": one}, rf"--scores: stream '{streams[4].id}', step \d+, candidate 0: found scores of no"),
        ({"scores": None}, "--scores_out: found no probabilities of a teacher in --streams"),
        ({"scores_out": None}, "--scores: found it without --scores_out, expected both"),
        ({"scores_out": "scores.parquet"}, "--scores_out: found .*, the file of --scores, expected another one"),
        ({"scores_out": one}, "--scores_out: found .*0.jsonl, the file of --streams, expected another one"),
    ]
    for flags, message in cases:
        with pytest.raises(ValueError, match=message):
            judge(panel_of("a"), {**FLAGS, "ask": True, **paths(folder, {"scores_out": "new.parquet", **flags})})
    with pytest.raises(ScoresError, match=r"found the suffix '.csv', expected .parquet or .jsonl"):
        run(folder, scores_out="new.csv")
    with pytest.raises(ValueError, match=f"stream '{first}', step 0, candidate 0: found a candidate without scores"):
        judged_scores(streams, table(streams[1:]))
    with pytest.raises(ValueError, match=f"stream '{first}': found curated rows .half., expected whole streams"):
        judged_scores([dataclasses.replace(streams[0], curated="half"), *streams[1:]], table(streams))
    assert not (folder / "new.parquet").exists()


def paths(folder, flags):
    files = {"streams": "written", "votes": "votes.jsonl", "scores": "scores.parquet"} | flags
    return {name: None if file is None else str(folder / file) for name, file in files.items()}


def test_without_scores_the_teachers_own_probabilities_are_the_signals(streams, votes):
    def taught(step):
        if step.event == 2:
            return step  # the teacher gave no answer
        accept = iter((0.9, 0.2))
        step = map_candidates(step, lambda offer: dataclasses.replace(offer, teacher_accept=next(accept)))
        return dataclasses.replace(step, teacher_need=step.event / 50)

    judged = list(label_streams(streams, gather(votes, NAMES), MOST_EVENTS, PanelConfig()))
    found, left_out = teacher_scores([map_steps(stream, taught) for stream in judged])
    steps = [step for stream in streams for step in stream.steps]
    assert left_out == sum(step.event == 2 for step in steps) > 0
    assert len(found) == 2 * (len(steps) - left_out) and found.split is None
    assert set(found.p_accept_fast[found.candidate == 0]) == {0.9}
    places = {stream.id: [step.event for step in stream.steps] for stream in streams}
    for row, (name, step) in enumerate(zip(found.stream, found.step.tolist(), strict=True)):
        assert found.p_need_fast[row] == places[name][step] / 50
    assert len({*zip(found.stream, found.fold.tolist(), strict=True)}) == len(streams)
    assert len(set(found.fold.tolist())) == 5


def test_a_stream_in_two_files_is_an_error_that_names_both(folder, streams, tmp_path):
    assert read_files(str(folder / "written" / "*.jsonl")) == streams == read_files(str(folder / "written"))
    write_streams(tmp_path / "0.jsonl", streams[:2])
    write_streams(tmp_path / "1.jsonl", streams[1:])
    with pytest.raises(StreamError, match=f"1.jsonl: id: found '{streams[1].id}' of .*0.jsonl again"):
        read_files(str(tmp_path))
