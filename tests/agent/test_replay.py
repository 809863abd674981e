"""Replay: without changes it is the log; with changes it is what the agent would have decided; it refuses to guess."""

import json

import pytest
from fake_reader import MAPS, Failing, FakeReader, exported

from prism_jax.agent import replay as module
from prism_jax.agent.agent import Agent
from prism_jax.agent.exported import Thinking
from prism_jax.agent.records_file import RecordsError
from prism_jax.agent.replay import Changes, replay
from prism_jax.agent.settings import AgentSettings, Budget, Critical, Exploration, Terms
from prism_jax.agent.steps import Observation
from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.thinking import Moves
from prism_jax.streams import Candidate, Event

OFFERS = (Candidate(text="Tea?"), Candidate(), Candidate(text="Coffee?"))


THINKING = Thinking(Moves(1.0, 0.5, 0.2), 30.0)


LOGS = {}


def log(**given):
    """The lines of a log, as a file holds them: decisions, and outcomes of some of the offers; each is made once."""
    if repr(given) not in LOGS:
        LOGS[repr(given)] = make_log(**given)
    return LOGS[repr(given)]


def make_log(count=200, slow=True, maps=MAPS, point=None, thinking=THINKING, reader=FakeReader, **terms):
    terms = Terms(point or OperatingPoint(margin=0.3, trigger="margin"), **terms)
    settings = AgentSettings(terms, Critical(frozenset({"event 7", "event 8"})))
    agent = Agent(reader(slow), exported(slow=slow, maps=maps, thinking=thinking), settings)
    shown = [Event(time=n * 60.0, text=f"event {n}") for n in range(count)]
    items = [Observation(f"s{n % 5}", one, OFFERS if n % 2 else (Candidate(),)) for n, one in enumerate(shown)]
    lines = []
    for decision in agent.observe_many(items):
        lines.append(decision.record())
        if decision.spoke and decision.event % 3:
            outcome = agent.outcome(decision.stream, decision.offer, "accepted", decision.time + 1)
            lines.append(outcome.record())
    return [(f"log:{n}", record) for n, record in enumerate(json.loads(json.dumps(lines)), 1)]


def plain(records):
    return json.loads(json.dumps(list(records)))


def without(records, *keys):
    return [{k: v for k, v in record.items() if k not in ("seconds", "fingerprints", *keys)} for record in records]


def of(lines):
    return [record for _, record in lines]


def decisions(records):
    return [record for record in records if record["kind"] == "decision"]


UNKNOWN = ("response", "tokens")
"""What a log does not have of offers that it did not make."""
SETTINGS = {
    "plain": {},
    "never thinking": {"slow": False},
    "explored": {"exploration": Exploration(0.3, 0.5, seed=2)},
    "budgets": {"offers": Budget(2, 3000.0), "thoughts": Budget(1, 3000.0)},
    "all": {"exploration": Exploration(0.3, 0.5), "offers": Budget(2, 3000.0), "thoughts": Budget(3, 3000.0)},
    "by value": {"point": OperatingPoint(trigger="value", price=3e-3)},
    "without some answers": {"reader": Failing},
    "fixed": {"point": OperatingPoint(policy="fixed", fixed_threshold=0.7)},
}


@pytest.mark.parametrize("case", SETTINGS)
@pytest.mark.parametrize("batch", [1024, 17])
def test_without_changes_every_record_is_reproduced(case, batch, monkeypatch):
    monkeypatch.setattr(module, "BATCH", batch)
    lines = log(**SETTINGS[case])
    assert {record["kind"] for _, record in lines} == {"decision", "outcome"}
    assert plain(replay(lines)) == [record for _, record in lines]


@pytest.mark.parametrize(
    "changes",
    [
        {"margin": 0.1},
        {"margin": 0.0, "c_fa": 3.0},
        {"policy": "product"},
        {"policy": "fixed", "fixed_threshold": 0.4},
        {"policy": "always"},
        {"trigger": "value", "price": 3e-3},
    ],
)
def test_with_changes_it_is_what_the_agent_would_have_decided(changes):
    lines = log(point=OperatingPoint(margin=1.0, trigger="margin"))  # thought about everywhere, so the log knows all
    point = OperatingPoint(**{"margin": 1.0, "trigger": "margin", **changes})
    found = decisions(plain(replay(lines, Changes(point=changes))))
    assert without(found, *UNKNOWN) == without(decisions(of(log(point=point))), *UNKNOWN)
    assert [r["spoke"] for r in found] != [r["spoke"] for r in decisions(of(lines))]
    assert all(r["response"] is None for r in found if not r["spoke"])


def test_other_maps_are_applied_to_raw_probabilities():
    other = {name: Temperature(3.0) for name in MAPS}
    lines = log(point=OperatingPoint(margin=1.0, trigger="margin"))
    expected = log(point=OperatingPoint(margin=1.0, trigger="margin"), maps=other)
    found = decisions(plain(replay(lines, Changes(maps=other))))
    assert without(found, *UNKNOWN) == without(decisions(of(expected)), *UNKNOWN)
    fast = {name: fitted for name, fitted in other.items() if name.endswith("fast")}
    with pytest.raises(RecordsError, match=r"log:\d+: calibration: found no map of the slow pass"):
        list(replay(lines, Changes(maps=fast)))
    list(replay(lines, Changes(maps=other, need_target="marginal")))
    with pytest.raises(RecordsError, match="need_target: found given_accept, expected marginal, as p_need"):
        list(replay(lines, Changes(maps=other, need_target="given_accept")))


def test_budgets_and_exploration_can_change():
    lines = log(exploration=Exploration(0.3, 0.5))
    for changes, expected in (
        (Changes(no_exploration=True), log()),
        (Changes(offers=Budget(1, 5000.0)), log(exploration=Exploration(0.3, 0.5), offers=Budget(1, 5000.0))),
        (Changes(exploration=Exploration(0.1, 0.2, 5)), log(exploration=Exploration(0.1, 0.2, 5))),
    ):
        found = decisions(plain(replay(lines, changes)))
        assert without(found, *UNKNOWN) == without(decisions(of(expected)), *UNKNOWN)


def test_a_wider_margin_is_refused_where_nobody_thought():
    lines = log(point=OperatingPoint(margin=0.1, trigger="margin"))
    with pytest.raises(RecordsError) as caught:
        list(replay(lines, Changes(point={"margin": 0.5})))
    place, record = next((p, r) for p, r in lines if r["kind"] == "decision" and not r["thought"] and not r["critical"])
    said = str(caught.value)
    assert said.startswith(f"{place}: stream {record['stream']!r}, event {record['event']}: found no slow pass")
    assert "the trigger margin of 0.5 fires" in said
    valued, spent = Changes(point={"trigger": "value", "price": 0.0}), log(thoughts=Budget(1, 1e9))
    for logged, changes, message in (
        (lines, valued, "the trigger value at a price of 0 fires"),
        (spent, Changes(thoughts=Budget(1000, 1e9)), "found no slow pass"),
    ):
        with pytest.raises(RecordsError, match=message):
            list(replay(logged, changes))


def test_outcomes_stay_with_the_offers_that_are_made_again():
    lines = log(point=OperatingPoint(margin=0.0, trigger="margin"))
    kept = [r["offer"] for r in replay(lines, Changes(point={"c_fa": 4.0})) if r["kind"] == "outcome"]
    made = {r["offer"] for r in replay(lines, Changes(point={"c_fa": 4.0})) if r["kind"] == "decision"}
    logged = [r["offer"] for _, r in lines if r["kind"] == "outcome"]
    assert kept == [offer for offer in logged if offer in made]
    assert 0 < len(kept) < len(logged)


def test_the_answer_to_one_offer_is_not_taken_for_that_to_another():
    """The log thought about every event, the replay about none, so that they choose different candidates."""
    lines = log(point=OperatingPoint(margin=1.0, trigger="margin"))
    again = plain(replay(lines, Changes(point={"margin": 0.0})))
    was, now = ({r["offer"]: r["chosen"] for r in decisions(some) if r["spoke"]} for some in (of(lines), again))
    answered = {r["offer"] for _, r in lines if r["kind"] == "outcome"} & was.keys() & now.keys()
    same = {offer for offer in answered if was[offer] == now[offer]}
    assert {r["offer"] for r in again if r["kind"] == "outcome"} == same
    assert 0 < len(same) < len(answered)


def test_a_log_with_a_gap_or_another_trigger_is_refused():
    lines = [line for line in log(thinking=None) if line[1]["kind"] == "decision"]
    with pytest.raises(RecordsError, match=r"log:\d+: event: found 1, expected 0, the next of its stream"):
        list(replay(lines[5:]))
    place, first = lines[0]
    for key, value, message in (
        ("trigger", {**first["trigger"], "name": "value"}, "trigger: found 'value', expected 'margin'"),
        ("candidates", ..., "candidates: found no such key"),
        ("costs", {"c_fa": 0.0, "c_fn": 1.0}, "c_fa: found 0.0, expected a cost"),
        ("time", -5.0, None),
    ):
        bad = {k: v for k, v in {**first, key: value}.items() if v is not ...}
        if message is None:
            list(replay([(place, bad)]))
            continue
        with pytest.raises(RecordsError, match=f"{place}: .*{message}"):
            list(replay([(place, bad), *lines[1:]]))
