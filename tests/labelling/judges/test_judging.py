"""Judging through the client, against a failing endpoint: every verdict is the judge's own, or missing."""

import dataclasses
import threading

import pytest
from judged_streams import MOST_EVENTS, bare, body, labelled

from prism_jax.labelling.judges.ballots import PanelConfig
from prism_jax.labelling.judges.judging import JudgesConfig, judge_streams
from prism_jax.labelling.judges.labelling import gather, judge_ballots, label_streams
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.simulated import SimulatedJudge, by_model
from prism_jax.labelling.judges.votes import Vote, merge_votes, read_votes, write_votes
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.streams import Candidate
from prism_jax.streams.edit import map_candidates

NAMES = ("a", "b", "c")


def panel(url, folder, **changes):
    settings = {"base_url": url, "input_price": 1.0, "output_price": 1.0, "patience": 30.0, "backoff": 0.01}
    endpoints = {name: EndpointConfig(model=f"model-{name}", **settings) for name in NAMES}
    config = JudgesConfig(name="panel", endpoints=endpoints, remote=RemoteConfig(str(folder / "c.sqlite"), budget=1.0))
    return dataclasses.replace(config, **changes)


def minds(streams, sensitivity=0.8, specificity=0.7):
    return {
        f"model-{name}": SimulatedJudge(streams, sensitivity=sensitivity, specificity=specificity, seed=seed)
        for seed, name in enumerate(NAMES)
    }


def judge(streams, judges, folder, **changes):
    """What became of asking judges about streams whose labels they do not see, and the verdicts."""
    with FakeEndpoint(by_model(judges)) as endpoint:
        config = panel(endpoint.url, folder, **changes)
        done = judge_streams(bare(streams), config, folder / "votes.jsonl", label="")
    return done, list(read_votes(folder / "votes.jsonl"))


def asked(streams):
    return {question.digest: question for stream in streams for question in questions(stream, MOST_EVENTS)}


def test_every_verdict_is_the_judges_own_or_missing_with_its_problem(tmp_path):
    streams = labelled(3)
    judges, own = minds(streams), asked(bare(streams))
    faults = Faults(limited=0.2, malformed=0.3, ignores_schema=0.2, garbled=0.1, truncated=0.1, down=((20, 30),))
    with FakeEndpoint(by_model(judges), faults) as endpoint:
        config = panel(endpoint.url, tmp_path, retries=1)
        done = judge_streams(bare(streams), config, tmp_path / "votes.jsonl", label="")
        assert max(endpoint.billed.values()) == 1
    votes = list(read_votes(tmp_path / "votes.jsonl"))
    assert [vote.judge for vote in votes] == list(NAMES) * len(own)
    assert [vote.question for vote in votes[::3]] == list(own)
    assert done.verdicts == len(votes)
    assert 0 < done.missing == sum(vote.verdict is None for vote in votes) < len(votes) / 2
    for vote in votes:
        if vote.verdict is None:
            assert vote.problem
        else:
            said = judges[f"model-{vote.judge}"](body(own[vote.question].text))
            assert vote.verdict == ("true" in said)
            assert vote.model == f"model-{vote.judge}" and len(vote.request) == 64 and vote.time.endswith("+00:00")
    assert sum(vote.cost for vote in votes) == pytest.approx(done.tally.cost)


def test_a_second_run_asks_nothing_and_writes_the_same(tmp_path):
    streams, path = labelled(2), tmp_path / "votes.jsonl"
    with FakeEndpoint(by_model(minds(streams))) as endpoint:
        config = panel(endpoint.url, tmp_path)
        judge_streams(bare(streams), config, path, label="")
        first, received = path.read_bytes(), endpoint.received.total()
        assert received == 3 * len(asked(streams))
        again = judge_streams(bare(streams), config, path, label="")
        assert (path.read_bytes(), endpoint.received.total()) == (first, received)
        assert (again.tally.cached, again.tally.cost) == (received, 0)


def test_verdicts_of_others_stay_and_those_of_the_panel_are_replaced(tmp_path):
    streams, path = labelled(1), tmp_path / "votes.jsonl"
    question = next(questions(bare(streams)[0], MOST_EVENTS))
    about = {"stream": question.stream, "step": 0, "candidate": None, "question": question.digest}
    old = Vote(judge="a", verdict=None, problem="was down", **about)
    other = Vote(judge="somebody", verdict=True, **about)
    write_votes(path, [old, other])
    _, votes = judge(streams, minds(streams), tmp_path)
    assert other in votes and old not in votes
    assert len(votes) == 3 * len(asked(streams)) + 1


def test_no_verdict_is_lost_to_a_missing_one_nor_to_another_run_on_the_file(tmp_path):
    """Two of three judges are gone in the second run; in the third, another panel ends while it is asking."""
    streams, path = labelled(1), tmp_path / "votes.jsonl"
    judges, link = minds(streams), tmp_path / "link.jsonl"
    link.symlink_to(path)
    silent = dict.fromkeys(("model-b", "model-c"), lambda _: "I cannot say.")
    merging: list[threading.Thread] = []

    def run(judges, cache, name):
        def brain(body):
            for act in (threading.Thread.start, threading.Thread.join):
                for thread in merging:
                    act(thread)
            merging.clear()
            return by_model(judges)(body)

        with FakeEndpoint(brain) as endpoint:
            remote = RemoteConfig(str(tmp_path / cache), 1.0)
            return judge_streams(bare(streams), panel(endpoint.url, tmp_path, remote=remote, retries=0), name, label="")

    assert run(judges, "first", path).missing == 0
    before = list(read_votes(path))
    assert run(judges | silent, "second", link).missing == 0 and link.is_symlink()
    after = list(read_votes(path))
    assert [(vote.key, vote.verdict) for vote in after] == [(vote.key, vote.verdict) for vote in before]
    others = [dataclasses.replace(vote, judge=f"other-{vote.judge}") for vote in before[:8]]
    merging += [threading.Thread(target=merge_votes, args=(path, [vote])) for vote in others]
    run(judges, "third", path)
    assert {vote.key for vote in read_votes(path)} == {vote.key for vote in (*before, *others)}
    assert sorted(file.name for file in tmp_path.glob("*.jsonl")) == ["link.jsonl", "votes.jsonl"]
    assert not list(tmp_path.glob(".*"))


def test_a_judge_who_never_answers_does_not_vote(tmp_path):
    """Two other judges agree or the label is missing; the third never counts as a rejection."""
    streams = labelled(2)
    judges = minds(streams, 1.0, 1.0)
    judges["model-c"] = lambda _: "I would rather not say."
    done, votes = judge(streams, judges, tmp_path, retries=0)
    verdicts = gather(votes, NAMES)
    assert done.missing == len(verdicts) == len(asked(streams))
    assert all(row[2] is None and row[0] == row[1] is not None for row in verdicts.values())
    found = list(label_streams(bare(streams), verdicts, MOST_EVENTS, PanelConfig()))
    for given, true in zip(found, streams, strict=True):
        for step, expected in zip(given.steps, true.steps, strict=True):
            assert step.y_need == expected.y_need
            assert step.votes == (not step.y_need,) * 2
            [candidate], [wanted] = step.candidates, expected.candidates
            assert (candidate.y_accept, candidate.logged, candidate.propensity) == (wanted.y_accept, True, 1.0)
    strict = label_streams(bare(streams), verdicts, MOST_EVENTS, PanelConfig(missing="require_all"))
    for step in (step for stream in strict for step in stream.steps):
        [candidate] = step.candidates
        assert {step.y_need, candidate.y_accept, candidate.logged, candidate.propensity} == {None}


def test_without_any_answer_there_are_no_verdicts(tmp_path):
    streams = labelled(2)
    with FakeEndpoint(by_model(minds(streams)), Faults(status=400)) as endpoint:
        config, path = panel(endpoint.url, tmp_path), tmp_path / "votes.jsonl"
        with pytest.raises(RuntimeError, match=r"found no answer to any of \d+ requests, .* HTTP 400"):
            judge_streams(bare(streams), config, path, label="")
        assert not list(tmp_path.glob("*votes*")), "neither verdicts nor an unfinished file of them"
        endpoint.faults = Faults()
        assert judge_streams(bare(streams), config, path, label="").missing == 0


def test_without_any_valid_answer_there_are_no_verdicts(tmp_path):
    judges = dict.fromkeys((f"model-{name}" for name in NAMES), lambda _: "I would rather not say.")
    with pytest.raises(RuntimeError, match=r"found no valid answer to any question, .*: found 0 JSON objects"):
        judge(labelled(1), judges, tmp_path, retries=0)
    assert not list(tmp_path.glob("*votes*"))


def test_soft_labels_are_shares_of_the_verdicts(tmp_path):
    streams = labelled(2)
    verdicts = gather(judge(streams, minds(streams), tmp_path)[1], NAMES)
    judged = label_streams(bare(streams), verdicts, MOST_EVENTS, PanelConfig(soft=True))
    steps = [step for stream in judged for step in stream.steps]
    for step in steps:
        assert step.y_need == pytest.approx(1 - sum(step.votes) / 3)
        assert step.candidates[0].y_accept == pytest.approx(sum(step.candidates[0].votes) / 3)
    assert len({step.y_need for step in steps}) > 2


def test_two_systems_are_asked_about_what_they_did_and_share_their_silences(tmp_path):
    streams = bare(labelled(2))

    def offering(places, text):
        def change(step):
            made = step.event in places
            return map_candidates(step, lambda _: Candidate(text=text if made else None, logged=made))

        return [dataclasses.replace(stream, steps=tuple(map(change, stream.steps))) for stream in streams]

    first, second = offering({1, 2}, "Shall I look?"), offering({2, 3}, "May I help?")
    with FakeEndpoint(by_model(minds(labelled(2)))) as endpoint:
        config = panel(endpoint.url, tmp_path, asked="made")
        judge_streams([*first, *second], config, tmp_path / "votes.jsonl", label="")
    votes = list(read_votes(tmp_path / "votes.jsonl"))
    steps = sum(len(stream.steps) for stream in streams)
    silent = steps - len(streams)  # at every event but the second, one of the systems or both are silent
    assert sum(vote.candidate is None for vote in votes) == 3 * silent
    assert sum(vote.candidate is not None for vote in votes) == 3 * 2 * 2 * len(streams)
    verdicts = gather(votes, NAMES)
    for system in (first, second):
        found = judge_ballots(system, verdicts, NAMES, MOST_EVENTS)
        texts = {item.text for item in found.items if not item.silence}
        assert texts == {system[0].steps[1].candidates[0].text}


def test_a_dry_run_sends_and_writes_nothing(tmp_path):
    streams = bare(labelled(2))
    with FakeEndpoint(lambda _: "") as endpoint:
        config = panel(endpoint.url, tmp_path)
        done = judge_streams(streams, config, tmp_path / "votes.jsonl", dry_run=True, label="")
        assert endpoint.received.total() == 0
    assert not (tmp_path / "votes.jsonl").exists()
    assert done.tally.requests == done.verdicts == 3 * len(asked(streams))
    assert done.tally.cost > 0


def test_an_even_number_of_judges_is_refused():
    endpoint = EndpointConfig("m", "http://127.0.0.1:9/v1")
    with pytest.raises(ValueError, match="endpoints: found 2 judges, expected an odd number"):
        JudgesConfig(endpoints={"a": endpoint, "b": endpoint})
    with pytest.raises(ValueError, match="endpoints: found 0 judges"):
        JudgesConfig()
