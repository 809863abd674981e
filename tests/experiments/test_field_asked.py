"""Baselines that ask an endpoint: what is sent, how answers become rows and decisions, and what no answer is."""

import dataclasses
import json
import re

import numpy as np
import pytest
from engines import Fake
from etils import epath

from prism_jax.experiments.field.command import chosen, study
from prism_jax.experiments.field.interface import Fold, Run, sampled_steps
from prism_jax.experiments.field.material import Material
from prism_jax.experiments.field.registry import BASELINES
from prism_jax.proactivebench.prompted import OURS
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint, Faults, question
from prism_jax.report.table import Table
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_candidates

P = {"silence": 0.3, "tea": 0.8, "coffee": 0.1}


def stream(name: str, *offers: str) -> Stream:
    """Three events, and steps after the first and the last of them."""
    events = tuple(Event(time=float(time), text=f"{name} does {time}") for time in range(3))
    candidates = tuple(Candidate(text=offer) for offer in offers)
    return Stream(id=name, events=events, steps=tuple(Step(event=event, candidates=candidates) for event in (0, 2)))


STREAMS = [stream("ada", "tea", "coffee"), stream("ben", "tea")]
FOLD = Fold(0, (), STREAMS)


def run_of(tmp_path, url, **settings) -> Run:
    endpoint = EndpointConfig("m", url, backoff=0.01, patience=2.0, input_price=0.0, output_price=0.0)
    return Run(
        epath.Path(tmp_path), endpoint=endpoint, remote=RemoteConfig(str(tmp_path / "answers.sqlite")), **settings
    )


def about(body) -> str:
    """What is judged in a request: silence, or the text of an offer."""
    found = re.search(r'proposal, a JSON string:\n"(.*?)"', question(body))
    return found[1] if found else "silence"


def test_stated_probabilities_are_read_and_a_step_without_one_gets_the_mean(tmp_path, capsys):
    def brain(body):
        never = "ben does 2" in question(body) and about(body) == "tea"
        return "Sure!" if never else json.dumps({"probability": P[about(body)]})

    with FakeEndpoint(brain) as fake:
        run = run_of(tmp_path, fake.url)
        scores = BASELINES["stated"].score(FOLD, run)
        asked = fake.received.total()
        assert BASELINES["stated"].score(FOLD, run).p_accept_fast.tolist() == scores.p_accept_fast.tolist()
        assert fake.received.total() == asked == 3 + 3 + 2 + 2 + 2  # questions, and two more attempts; then the cache
    mean = (0.8 + 0.1 + 0.8 + 0.1 + 0.8) / 5
    np.testing.assert_allclose(scores.p_accept_fast, [0.8, 0.1, 0.8, 0.1, 0.8, mean])
    np.testing.assert_allclose(scores.p_need_fast, 0.7)
    assert scores.step.tolist() == [0, 0, 1, 1, 0, 1] and set(scores.split) == {"test"}
    assert "1 of 4 steps have no answer; at 1: found 0 JSON objects" in capsys.readouterr().err


def test_answers_that_nobody_can_read_tell_nothing_and_a_server_that_refuses_is_an_error(tmp_path):
    with FakeEndpoint(lambda body: "Sure!") as fake:
        scores = BASELINES["stated"].score(FOLD, run_of(tmp_path, fake.url))
    assert set(scores.p_accept_fast) == set(scores.p_need_fast) == {0.5}
    with (
        FakeEndpoint(lambda body: "", Faults(status=400)) as fake,
        pytest.raises(RuntimeError, match="found no answer"),
    ):
        BASELINES["stated"].score(FOLD, run_of(tmp_path, fake.url))


def test_need_is_neither_asked_for_nor_filled_in_where_nobody_reads_it(tmp_path):
    def brain(body):
        return "Sure!" if about(body) == "coffee" else json.dumps({"probability": P[about(body)]})

    with FakeEndpoint(brain) as fake:
        run = run_of(tmp_path, fake.url)
        some, none = (
            BASELINES["stated"].score(Fold(0, (), [stream(name, offer)], need=False), run)
            for name, offer in (("ada", "tea"), ("ben", "coffee"))
        )
    assert not some.has_need and not none.has_need
    assert set(some.p_accept_fast) == {0.8} and set(none.p_accept_fast) == {0.5}


def test_votes_are_seeded_and_those_that_nobody_can_read_do_not_count(tmp_path):
    seeds = []

    def brain(body):
        assert body["temperature"] == 1.0
        seeds.append(body["seed"])
        if body["seed"] == 16:
            return "Sure!"
        return json.dumps({"accepted": about(body) == "tea" or (about(body) == "coffee" and body["seed"] < 10)})

    with FakeEndpoint(brain) as fake:
        scores = BASELINES["votes"].score(FOLD, run_of(tmp_path, fake.url, seed=7))
    assert sorted(seeds) == sorted([*range(7, 17)] * 10)
    np.testing.assert_allclose(scores.p_accept_fast, [1, 3 / 9, 1, 3 / 9, 1, 1])
    np.testing.assert_allclose(scores.p_need_fast, 1)


def test_a_model_that_is_told_the_costs_chooses_an_offer_or_silence(tmp_path):
    def brain(body):
        assert "would have helped costs" in body["messages"][0]["content"]
        assert body["response_format"]["json_schema"]["schema"]["properties"]["offer"]["minimum"] == 0
        if "ben" in question(body):
            return json.dumps({"offer": 2})  # there is one
        return json.dumps({"offer": 2 if "costs 4" in body["messages"][0]["content"] else 0})

    with FakeEndpoint(brain) as fake:
        run, decide = run_of(tmp_path, fake.url), BASELINES["told_costs"].decide
        silent = {("ada", 0): None, ("ada", 1): None, ("ben", 0): None, ("ben", 1): None}
        assert decide(FOLD, run, 0.5) == silent
        assert decide(FOLD, run, 4.0) == silent | {("ada", 0): 1, ("ada", 1): 1}


def test_an_agent_is_asked_about_every_event_up_to_the_last_step_of_the_sample(tmp_path):
    shown = []

    def brain(body):
        assert body["messages"][0]["content"] == OURS.system
        shown.append(re.search(r"(\w+ does \d)", question(body))[1])
        if shown[-1] == "ben does 2":
            return "Sure!"
        return json.dumps({"Proactive Task": "Make tea." if shown[-1].endswith("2") else None})

    with FakeEndpoint(brain) as fake:
        run = run_of(tmp_path, fake.url)
        found = BASELINES["agent"].decide(FOLD, run, 1.0)
        assert found == {("ada", 0): None, ("ada", 1): 0, ("ben", 0): None, ("ben", 1): None}
        assert len(shown) == 6 + 4  # attempts at an answer that cannot be read
        one = run_of(tmp_path, fake.url, steps=1)
        [(place, number)] = sampled_steps(STREAMS, one)
        assert BASELINES["agent"].decide(FOLD, one, 1.0).keys() == {(STREAMS[place].id, number)}
        assert len(shown) == 10, "what the larger sample asked was kept"


@pytest.mark.parametrize("name", ["decisions", "systemone", "served"])
def test_a_decision_model_is_asked_in_each_form(tmp_path, name):
    fake = Fake("decisions", None)
    run = run_of(tmp_path, fake.url, steps=3)
    try:
        scores = BASELINES[name].score(FOLD, run)
        bodies = [body for _, body in fake.asked]
    finally:
        fake.close()
    numbers = [(STREAMS[place].id, number) for place, number in sampled_steps(STREAMS, run)]
    assert list(dict.fromkeys(zip(scores.stream.tolist(), scores.step.tolist(), strict=True))) == numbers
    assert len(bodies) == 3
    words = json.dumps(bodies)
    assert ('"accept:tea"' in words) == (name == "served") and ('"state"' in words) == (name == "systemone")


def test_a_decision_model_that_refuses_is_filled_with_the_mean(tmp_path, capsys):
    fake = Fake("decisions", None, ["refusal"])
    try:
        scores = BASELINES["decisions"].score(FOLD, run_of(tmp_path, fake.url))
        fake.always = "refusal"
        with pytest.raises(RuntimeError, match="decision model: found no answer at any step"):
            BASELINES["decisions"].score(FOLD, run_of(tmp_path / "again", fake.url))
    finally:
        fake.close()
    assert "decision model: 1 of 4 steps have no answer" in capsys.readouterr().err
    assert len(scores) == 6 and np.isfinite(scores.p_accept_fast).all()


def test_the_table_has_a_row_for_each_way_of_asking_and_a_second_call_asks_nothing(tmp_path):
    def judged(offer):
        return dataclasses.replace(offer, y_accept=float(offer.text == "tea"))

    streams = [stream(name, "tea", "coffee") for name in ("ada", "ben", "cy", "dan")]
    source = Material("drinks", tuple(map_candidates(one, judged) for one in streams))

    def brain(body):
        told = "counted from 1" in body["messages"][0]["content"]
        return json.dumps({"offer": 1} if told else {"probability": P[about(body)]})

    with FakeEndpoint(brain) as fake:
        run = run_of(tmp_path, fake.url)
        ways = chosen(["constant", "stated", "told_costs"], run)
        tables = [table for table in study(ways, [source], run, resamples=100) if isinstance(table, Table)]
        asked = fake.received.total()
        again = [table for table in study(ways, [source], run, resamples=100) if isinstance(table, Table)]
        assert fake.received.total() == asked == 8 * 2 + 8 * 4  # of offers alone, and four ratios of costs
        few = list(study(ways, [source], dataclasses.replace(run, steps=3), resamples=100))
    assert few[1].sections[0].rows[1].cells[0] == "6", "folds without a step of the sample have no rows"
    assert [table.to_csv() for table in again] == [table.to_csv() for table in tables]
    assert [row.name for row in tables[1].sections[0].rows] == ["base rate", "stated probabilities"]
    told = [row for section in tables[2].sections for row in section.rows if row.name == "told the costs"]
    assert len(told) == 4 and {row.cells[2][:5] for row in told} == {"0.000"}
    given = {row.name: row.cells for row in tables[0].sections[0].rows}
    assert given["told the costs"] == ("decisions", "yes") and given["base rate"] == ("probabilities", "yes")
