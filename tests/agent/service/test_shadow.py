"""Where the host decides and the gate watches: nothing obeys the gate, and the report is what hand counting gives."""

import json

import numpy as np
import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.replay import Changes, replay
from prism_jax.agent.service.shadow import shadow_report, watched_of
from prism_jax.agent.settings import AgentSettings, Budget, Terms
from prism_jax.agent.state.reading import Cursor, read_log
from prism_jax.agent.steps import Observation
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.streams import Event

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from visitor import answered, decide


def items(count, spoke):
    return [Observation(f"s{n % 3}", Event(time=60.0 * n, text=f"event {n}"), spoke=spoke(n)) for n in range(count)]


def test_the_host_decides_and_the_record_says_what_the_gate_would_have_done():
    settings = AgentSettings(Terms(exported().point))
    obeyed = Agent(FakeReader(), exported(), settings).observe_many(items(60, lambda n: None))
    reader = FakeReader()
    watching = Agent(reader, exported(), settings)
    watched = watching.observe_many(items(60, lambda n: n % 2 == 0))
    assert [one.spoke for one in watched] == [n % 2 == 0 for n in range(60)]
    assert [one.would_speak for one in watched] == [one.spoke for one in obeyed]
    assert {one.propensity for one in watched} == {0.0, 1.0}
    assert not any(kind == "respond" for kind, _ in reader.calls), "the host says what it says"
    for mine, gate in zip(watched, obeyed, strict=True):
        assert mine.reason == f"{'offer' if mine.spoke else 'silent'}: by the host; the gate: {gate.reason}"
    assert watching.outcome("s0", "s0/0", "dismissed", 5.0).outcome == "dismissed"
    lines = [(f"log:{i}", json.loads(json.dumps(one.record()))) for i, one in enumerate(watched)]
    again = list(replay(lines))
    assert [one["spoke"] for one in again] == [one.spoke for one in watched]
    assert [one["shadow"] for one in again] == [record["shadow"] for _, record in lines]
    freed = list(replay(lines, Changes(obeyed=True)))
    assert [one["spoke"] for one in freed] == [one.spoke for one in obeyed]
    assert not any("shadow" in one for one in freed)


@pytest.mark.parametrize("host", [True, False])
def test_the_hosts_offers_do_not_spend_the_gates_budget(host):
    """What the gate would have done spends it, and so it would have been had the gate decided."""
    settings = AgentSettings(Terms(exported().point, offers=Budget(2, 600.0)))
    obeying, watching, again = (Agent(FakeReader(), exported(), settings) for _ in range(3))
    obeyed = obeying.observe_many(items(90, lambda n: None))
    watched = watching.observe_many(items(90, lambda n: host))
    assert [one.would_speak for one in watched] == [one.spoke for one in obeyed]
    assert any("interruption budget" in one.reason for one in obeyed)
    again.resume_many(items(60, lambda n: host), [one.record() for one in watched[:60]])
    rest = again.observe_many(items(90, lambda n: host)[60:])
    assert [one.would_speak for one in rest] == [one.would_speak for one in watched[60:]], "as before a restart"


def decision(number, spoke, would, stream="s", p_need=0.5, p_accept=0.4, candidates=1):
    offer = {"offer": f"{stream}/{number}" if spoke else None, "spoke": spoke, "candidates": [None] * candidates}
    known = {"p_need": p_need, "p_accept": p_accept, "costs": {"c_fa": 1.0, "c_fn": 3.0}}
    return {"kind": "decision", "stream": stream, "event": number, **offer, **known, "shadow": {"would_speak": would}}


def outcome(number, what, stream="s", needed=None):
    return {"kind": "outcome", "stream": stream, "offer": f"{stream}/{number}", "outcome": what, "needed": needed}


def report_of(*log):
    return shadow_report(map(watched_of, log))


def test_the_report_counts_what_would_have_been_withheld_and_added():
    log = [
        *(decision(0, True, False), outcome(0, "dismissed")),  # saves 1
        *(decision(1, True, False), outcome(1, "accepted")),  # costs 3 if it was needed, by p_need 1.5
        *(decision(2, True, False), outcome(2, "accepted", needed=True)),  # costs 3
        *(decision(3, True, True), outcome(3, "ignored")),  # no difference
        decision(4, False, True, p_need=0.9, p_accept=0.8),  # 0.2 - 0.8 * 0.9 * 3
        decision(5, False, False, stream="t"),
        {key: value for key, value in decision(6, True, True).items() if key != "shadow"},  # the gate decided
    ]
    report = report_of(*log)
    assert (report.decisions, report.host_offers, report.gate_offers) == (6, 4, 2)
    assert report.withheld == {"accepted": 2, "dismissed": 1, "ignored": 0, "none": 0}
    assert (report.added, report.expected_accepted, report.unjudged) == (1, 0.8, 1)
    assert report.withheld_cost[:3] == pytest.approx([(1.5 + 3 - 1) / 6] * 3)
    assert report.judged_cost[:3] == pytest.approx([(3 + 3 - 1) / 6] * 3)
    assert report.added_cost.value == pytest.approx((0.2 - 0.8 * 0.9 * 3) / 6)
    assert json.loads(json.dumps(report.tree()))["withheld_cost"]["value"] == pytest.approx(3.5 / 6)
    assert "The host made 4 offers at 6 decisions, the gate would have made 2." in report.text()
    assert "Nobody judged whether 1 of the accepted ones were needed: p_need stands for that" in report.text()
    empty = shadow_report([])
    assert empty.decisions == 0 and set(empty.tree()["added_cost"].values()) == {None}


def test_the_interval_is_over_streams():
    log = [decision(n, True, False, stream=f"{n % 6}") for n in range(30)]
    answers = [outcome(n, "dismissed" if n % 5 else "accepted", f"{n % 6}", needed=n % 4 == 0) for n in range(30)]
    cost = [-1.0 if n % 5 else 3.0 * (n % 4 == 0) for n in range(30)]
    expected = mean_interval(np.array(cost), np.arange(30) % 6)
    for found in (report_of(*log, *answers).withheld_cost, report_of(*log, *answers).judged_cost):
        np.testing.assert_allclose((found.value, found.low, found.high), expected[:3])


def test_offers_without_an_answer_stay_and_are_bounded():
    answered = [one for n in range(3) for one in (decision(n, True, False), outcome(n, "dismissed"))]
    report = report_of(*answered, decision(3, True, False))
    expected = -1 + (0.4 * 0.5 * 3 - 0.6 + 1) / 4  # the fourth by the gate's own probabilities
    assert report.withheld["none"] == 1
    assert report.withheld_cost[:3] == pytest.approx((expected, -1.0, 0.0))
    assert np.isnan(report.judged_cost.value) and report.judged_cost[1:3] == pytest.approx((-1.0, 0.0))
    assert "from -1.0000 to +0.0000" in report.text() and "all dismissed to all accepted" in report.text()
    unknown = report_of(*answered, decision(3, True, False, p_need=None, p_accept=None))
    assert np.isnan(unknown.withheld_cost.value) and unknown.withheld_cost[1:3] == pytest.approx((-1.0, 0.0))
    accepted = report_of(decision(0, True, False, p_need=None, p_accept=None), outcome(0, "accepted"))
    assert accepted.withheld_cost[1:3] == (0.0, 3.0)
    critical = report_of(decision(0, False, True, p_need=None, p_accept=None))
    assert critical.added == 1 and critical.added_cost[1:3] == (-3.0, 1.0)


@pytest.mark.parametrize(
    ("would", "answer", "needed", "least", "most"),
    [
        (False, "accepted", True, 3.0, 3.0),
        (False, "dismissed", None, -1.0, 2.0),  # another candidate may have been accepted
        (False, "dismissed", False, -1.0, -1.0),
        (False, None, None, -1.0, 3.0),
        (True, "accepted", None, 0.0, 1.0),  # the gate's own may have been dismissed
        (True, "dismissed", None, -1.0, 0.0),
        (True, None, None, -1.0, 1.0),
    ],
)
def test_where_the_offers_may_be_different_ones_there_are_bounds_alone(would, answer, needed, least, most):
    said = [] if answer is None else [outcome(0, answer, needed=needed)]
    report = report_of(decision(0, True, would, candidates=2), *said)
    assert report.different == 1 and "the gate may mean another one" in report.text()
    assert report.withheld_cost[1:3] == (least, most)
    assert report.withheld_cost.value == least if least == most else np.isnan(report.withheld_cost.value)
    assert ("there is no estimate" in report.text()) == (least != most)


def test_a_server_in_shadow_mode_is_never_obeyed_and_reports(tmp_path, start):
    served, answers = start(shadow=True), []
    for number in range(12):
        accept, more = 0.9 if number % 3 == 0 else 0.05, {"spoke": False} if number == 11 else {}
        answers.append(decide(served, "ada", 0.9, accept, time=float(number), **more))
        if number in (0, 1):
            assert answered(served, answers[-1]["id"], "dismissed", number + 0.5)[0] == 200
    assert [one["speak"] for one in answers] == [True] * 11 + [False]
    assert [one["would_speak"] for one in answers[2:]] == [number % 3 == 0 for number in range(2, 12)]
    status, report, _ = served.ask("/v1/shadow")
    assert status == 200
    assert (report["decisions"], report["host_offers"]) == (12, 11)
    assert report["gate_offers"] == sum(one["would_speak"] for one in answers)
    assert report["withheld"]["none"] + report["withheld"]["dismissed"] == 11 - report["gate_offers"]
    assert served.ask("/v1/shadow?since=1e12")[1]["decisions"] == 0
    sent, _ = read_log(tmp_path / "state" / "tenants" / "default", Cursor(), 100, offers=True)
    assert sent == [], "nobody is sent what the host says anyway"
