"""The agent on a reader without a model: what it asks, what it decides, what silence costs."""

import json
import tracemalloc

import numpy as np
import pytest
from fake_reader import MAPS, Failing, FakeReader, exported
from scipy.special import expit

from prism_jax.agent import ledger
from prism_jax.agent.agent import Agent
from prism_jax.agent.exported import Thinking
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.reader import FastReading, ThinkRequest, Thought
from prism_jax.agent.settings import AgentSettings, Critical, Terms
from prism_jax.agent.steps import Observation
from prism_jax.decision import gate
from prism_jax.decision.calibration import GroupedTemperature, Isotonic, apply_map
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.decision.thinking import Moves, value_of_thinking
from prism_jax.streams import Candidate, Event

NAMES = ("need", "accept")
OFFERS = tuple(Candidate(text=text) for text in ("Tea?", "Coffee?", None, "Water?"))


def events(count, streams=3):
    """Events of interleaved streams, a third of them with candidates."""
    shown = [Event(time=float(n), text=f"event {n}") for n in range(count)]
    return [Observation(f"s{n % streams}", one, (Candidate(),) if n % 3 else OFFERS) for n, one in enumerate(shown)]


def told(decision):
    """A decision without its seconds."""
    record = json.loads(json.dumps(decision.record()))
    assert record.pop("seconds").keys() == {"read", "think", "decide", "respond"}
    return record


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.4, 1.0])
def test_decisions_are_those_of_the_decision_library(margin):
    """The library decides on whole columns, the agent event by event; the pass that decides ranks the candidates."""
    point = OperatingPoint(c_fn=1.5, margin=margin)
    found = Agent(FakeReader(), exported(point=point)).observe_many(events(300))
    reader, signals = FakeReader(), []
    for item in events(300):
        one = [(item.stream, item.event, item.candidates)]
        (fast,), (slow,) = reader.observe(one), reader.think([ThinkRequest(item.stream, item.candidates)])
        for z, thinking in ((fast, "fast"), (slow, "slow")):
            best = int(np.argmax(z.z_accept))
            raw = expit(np.array([z.z_need])), expit(np.array([z.z_accept[best]]))
            need, accept = (apply_map(MAPS[f"{s}_{thinking}"], p)[0] for s, p in zip(NAMES, raw, strict=True))
            signals.append((need, accept, best))
    columns = np.array(signals).reshape(300, 6)
    need_fast, accept_fast, best_fast, need_slow, accept_slow, best_slow = columns.T
    spoke, slow = gate.decide_with_slow(Pass(need_fast, accept_fast), Pass(need_slow, accept_slow), 1.0, 1.5, margin)
    assert [d.spoke for d in found] == spoke.tolist()
    assert [d.thought for d in found] == slow.tolist()
    assert 0 < spoke.sum() < 300
    np.testing.assert_allclose([d.p_need for d in found], np.where(slow, need_slow, need_fast), rtol=1e-12)
    np.testing.assert_allclose([d.p_accept for d in found], np.where(slow, accept_slow, accept_fast), rtol=1e-12)
    assert [d.signals.best for d in found] == np.where(slow, best_slow, best_fast).tolist()
    threshold = gate.threshold(np.where(slow, need_slow, need_fast), 1.0, 1.5)
    np.testing.assert_allclose([d.threshold for d in found], threshold, rtol=1e-12)


@pytest.mark.parametrize("price", [0.0, 1e-3, 4e-3, 1.0])
def test_the_value_trigger_is_that_of_the_decision_library(price):
    known = Thinking(Moves(1.5, 0.8, 0.3), 20.0)
    point = OperatingPoint(trigger="value", price=price)
    found = Agent(FakeReader(), exported(point=point, thinking=known)).observe_many(events(300))
    fast = [np.array([(d.fast.need, d.fast.accept[d.fast.best])[i] for d in found]) for i in range(2)]
    value = value_of_thinking(*fast, 1.0, 2.0, known.moves)
    assert [d.thought for d in found] == (value >= price * 20.0).tolist()
    assert {0.0: {True}, 1.0: {False}}.get(price, {True, False}) == {d.thought for d in found}


@pytest.mark.parametrize("known", [None, Thinking(Moves(1.5, 0.8, 0.3), 20.0)])
def test_the_trigger_auto_is_value_where_thinking_is_known_and_margin_elsewhere(known):
    name = "margin" if known is None else "value"
    auto, named = (
        Agent(FakeReader(), exported(point=OperatingPoint(price=1e-3, trigger=trigger), thinking=known))
        for trigger in ("auto", name)
    )
    found = auto.observe_many(events(100))
    assert [d.thought for d in found] == [d.thought for d in named.observe_many(events(100))]
    assert {d.thought for d in found} == {True, False}
    assert found[0].record()["trigger"]["name"] == name


def test_the_value_trigger_needs_to_know_what_thinking_does():
    point = OperatingPoint(trigger="value")
    with pytest.raises(ValueError, match="trigger: found 'value', expected 'margin': nothing is known"):
        Agent(FakeReader(), exported(point=point))
    agent = Agent(FakeReader(), exported())
    with pytest.raises(RefusedError, match="stream 's': trigger: found 'value'"):
        agent.observe("s", Event(time=0.0, text="x"), costs={"trigger": "value"})
    fast = Agent(FakeReader(slow=False), exported(slow=False, point=point))  # has no effect without a slow pass
    assert not fast.observe("s", Event(time=0.0, text="x")).thought


@pytest.mark.parametrize("batch", [1, 7, 200])
def test_batches_change_nothing(batch):
    items = events(200, streams=7)
    whole = [told(d) for d in Agent(FakeReader(), exported()).observe_many(items)]
    agent = Agent(FakeReader(), exported())
    parts = [told(d) for i in range(0, 200, batch) for d in agent.observe_many(items[i : i + batch])]
    assert parts == whole


def test_one_call_per_phase_serves_a_batch_of_streams():
    reader = FakeReader()
    found = Agent(reader, exported(point=OperatingPoint(margin=0.3))).observe_many(events(40, streams=40))
    assert [name for name, _ in reader.calls] == ["observe", "think", "respond"]
    asked = dict(reader.calls)
    assert asked["think"] == [d.stream for d in found if d.thought]
    assert asked["respond"] == [d.stream for d in found if d.spoke]
    assert 0 < len(asked["think"]) < 40 and 0 < len(asked["respond"]) < 40


def test_silence_generates_no_token():
    reader = FakeReader()
    agent = Agent(reader, exported(point=OperatingPoint(policy="never")))
    found = agent.observe_many(events(60))
    assert {name for name, _ in reader.calls} == {"observe"}
    assert {(d.tokens["think"], d.tokens["respond"]) for d in found} == {(0, 0)}
    assert {(d.offer, d.response, d.fields, d.propensity) for d in found} == {(None, None, None, 0.0)}
    assert {d.reason for d in found} == {"silent: policy never"}


def test_a_model_without_slow_branches_decides_on_the_fast_pass():
    reader = FakeReader(slow=False)
    found = Agent(reader, exported(slow=False, point=OperatingPoint(margin=1.0))).observe_many(events(60))
    assert "think" not in dict(reader.calls)
    assert not any(d.thought or d.fired or d.has_slow_pass for d in found)
    assert {d.record()["slow"] for d in found} == {None}
    with pytest.raises(ValueError, match="no maps of the slow pass"):
        Agent(FakeReader(slow=True), exported(slow=False))


def test_a_model_without_responses_offers_and_is_asked_for_none():
    reader = FakeReader(responses=False)
    found = Agent(reader, exported(responses=False)).observe_many(events(60))
    assert any(d.spoke for d in found) and not all(d.spoke for d in found)
    assert {(d.response, d.tokens["respond"]) for d in found} == {(None, 0)}
    with_responses = Agent(FakeReader(), exported()).observe_many(events(60))
    assert [d.spoke for d in found] == [d.spoke for d in with_responses]


class Fixed(FakeReader):
    """Gives the same slots to every event."""

    def __init__(self, need, accept, slow_accept=None):
        super().__init__()
        self.need, self.accept, self.slow_accept = need, accept, slow_accept or accept

    def observe(self, items):
        super().observe(items)
        return [FastReading(self.need, self.accept, 1) for _ in items]

    def think(self, items):
        return [Thought(self.need, self.slow_accept, {"risk": "none"}, 1) for _ in items]


def test_the_pass_that_decides_ranks_and_a_tie_falls_to_the_first():
    reader = Fixed(2.0, (1.0, 3.0, 3.0, 0.0), slow_accept=(0.5, 0.2, 2.5, 2.5))
    fast = Agent(reader, exported(point=OperatingPoint(margin=0.0)))
    slow = Agent(reader, exported(point=OperatingPoint(margin=1.0)))
    event = Event(time=0.0, text="x")
    assert fast.observe("s", event, OFFERS).candidate == "Coffee?"
    decision = slow.observe("s", event, OFFERS)
    assert (decision.candidate, decision.thought) == (None, True)
    assert json.loads(decision.response) == {"Proactive Task": None, "Thoughts": "none"}


def test_isotonic_ties_are_broken_by_raw_probabilities():
    """As in the scores table: the map may make offers equal that the model ranks."""
    flat = Isotonic(np.array([0.0, 1.0]), np.array([0.6, 0.6]))
    agent = Agent(Fixed(2.0, (0.1, 0.4, 0.3, 0.2)), exported(maps={**MAPS, "accept_fast": flat}))
    assert agent.observe("s", Event(time=0.0, text="x"), OFFERS).candidate == "Coffee?"


def test_grouped_maps_follow_the_domain():
    maps = {name: GroupedTemperature({"coding": 0.5, "life": 4.0}, 1.0) for name in MAPS}
    agent = Agent(Fixed(1.0, (1.0,)), exported(maps=maps, point=OperatingPoint(margin=0.0)))
    p = {d: agent.observe(d, Event(time=0.0, text="x"), domain=d).p_need for d in ("coding", "life", "else")}
    np.testing.assert_allclose(list(p.values()), expit([2.0, 0.25, 1.0]), rtol=1e-12)


def test_certain_and_hopeless_logits_are_decided_on():
    for need, accept, spoke in ((-np.inf, 40.0, False), (40.0, np.inf, True), (800.0, -800.0, False)):
        decision = Agent(Fixed(need, (accept,)), exported()).observe("s", Event(time=0.0, text="x"))
        assert decision.spoke == spoke
        json.dumps(decision.record(), allow_nan=False)
    assert Agent(Fixed(-np.inf, (1.0,)), exported()).observe("s", Event(time=0.0, text="x")).threshold is None
    with pytest.raises(ValueError, match="stream 's': found log-odds that are not a number"):
        Agent(Fixed(np.nan, (1.0,)), exported()).observe("s", Event(time=0.0, text="x"))
    with pytest.raises(ValueError, match="stream 's': found 2 accept slots, expected 1"):
        Agent(Fixed(1.0, (1.0, 2.0)), exported()).observe("s", Event(time=0.0, text="x"))


def test_a_clock_that_jumps_back_is_refused_and_nothing_is_read():
    reader = FakeReader()
    agent = Agent(reader, exported())
    agent.observe("a", Event(time=10.0, text="x"))
    before = dict(reader.trunks)
    items = [Observation("b", Event(time=0.0, text="x")), Observation("a", Event(time=9.5, text="y"))]
    with pytest.raises(RefusedError, match=r"stream 'a': time: found 9.5, expected at least 10.0"):
        agent.observe_many(items)
    assert reader.trunks == before
    assert agent.refusals(items)[0] is None and "9.5" in agent.refusals(items)[1]
    again = agent.observe("a", Event(time=10.0, text="y"))  # the same time is in order
    assert (again.event, again.time) == (1, 10.0)


def test_outcomes_answer_offers_once():
    agent = Agent(FakeReader(), exported(point=OperatingPoint(policy="always")))
    decision = agent.observe("a/1", Event(time=5.0, text="x"))
    other = agent.observe("a", Event(time=5.0, text="x"))
    assert (decision.offer, other.offer) == ("a/1/0", "a/0")
    for stream, offer, outcome, time, message in (
        ("a/1", "a/1/7", "accepted", 6.0, "offer 'a/1/7': found no such offer in stream 'a/1'"),
        ("b", "a/1/0", "accepted", 6.0, "found no such offer in stream 'b'"),
        ("a/1", "a/1/0", "taken", 6.0, "outcome: found 'taken', expected one of accepted, dismissed, ignored"),
        ("a/1", "a/1/0", "accepted", 4.0, "time: found 4.0, expected at least 5.0"),
        ("a/1", "a/1/0", "accepted", float("nan"), "time: found nan"),
    ):
        with pytest.raises(RefusedError, match=message):
            agent.outcome(stream, offer, outcome, time)
    assert agent.outcome("a/1", "a/1/0", "dismissed", 6.0).outcome == "dismissed"
    with pytest.raises(RefusedError, match="offer 'a/1/0': found a second outcome, 'accepted'"):
        agent.outcome("a/1", "a/1/0", "accepted", 7.0)


def test_a_resumed_agent_goes_on_as_the_one_before():
    items = events(120, streams=4)
    point = OperatingPoint(policy="dynamic", margin=0.2)
    whole = Agent(FakeReader(), exported(point=point)).observe_many(items)
    again = Agent(FakeReader(), exported(point=point))
    again.resume_many(items[:70], [d.record() for d in whole[:70]])
    assert [told(d) for d in again.observe_many(items[70:])] == [told(d) for d in whole[70:]]
    offer = next(d for d in whole if d.spoke)
    assert again.outcome(offer.stream, offer.offer, "accepted", 500.0).offer == offer.offer
    other = [items[0]._replace(event=Event(time=0.0, text="another"))]
    with pytest.raises(ValueError, match=r"stream 's0', event 0: found the history \w{12}…, expected \w{12}…"):
        Agent(FakeReader(), exported(point=point)).resume_many(other, [whole[0].record()])


def test_an_event_without_an_answer_is_silence_and_stays_in_its_stream():
    """The others of its batch, and later events of its stream, are decided as if there had been an answer."""
    items, point = events(60), OperatingPoint(policy="always", margin=0.0)
    settings = AgentSettings(Terms(point), Critical(frozenset({"event 2", "event 3"})))
    whole = Agent(FakeReader(), exported(point=point), settings).observe_many(items)
    agent = Agent(Failing(), exported(point=point), settings)
    found = agent.observe_many(items)
    for number, (decision, other) in enumerate(zip(found, whole, strict=True)):
        if number % 3 != 2:
            assert told(decision) == told(other)
        elif number == 2:
            assert (decision.offer, decision.reason) == ("s2/0", "offer: critical event; the engine is away")
        else:
            assert not decision.spoke and decision.propensity == 0.0
            assert (decision.reason, decision.unanswered) == ("silent: the engine is away", "the engine is away")
            assert np.isnan([decision.p_need, decision.p_accept]).all()
            record = decision.record()
            assert [record[key] for key in ("p_need", "p_accept", "p_need_fast", "fast")] == [None] * 4
            assert decision.history == other.history
    assert not any(stream == "s2" for kind, streams in agent.reader.calls if kind == "think" for stream in streams)
    again = Agent(Failing(), exported(point=point), settings)
    again.resume_many(items[:31], [decision.record() for decision in found[:31]])
    assert [told(decision) for decision in again.observe_many(items[31:])] == [told(d) for d in found[31:]]


@pytest.mark.slow
def test_ten_thousand_streams_take_little_memory_and_idle_ones_none():
    class Bare(FakeReader):
        def observe(self, items):
            return [FastReading(-1.0, (0.0,) * len(candidates), 1) for _, _, candidates in items]

        def history(self, stream):
            return "0" * 64

    agent = Agent(Bare(), exported(point=OperatingPoint(policy="never")))
    items = [Observation(f"stream {i}", Event(time=0.0, text="x")) for i in range(10_000)]
    agent.observe_many(items[:10])
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    agent.observe_many(items)
    kept = sum(one.size_diff for one in tracemalloc.take_snapshot().compare_to(before, "filename"))
    tracemalloc.stop()
    assert kept < 10_000 * 400  # bytes; the reader's trunks come on top


def test_offers_that_nobody_answers_are_forgotten_in_the_end(monkeypatch):
    """The newest so many can still be answered, and what an agent keeps of them has a bound."""
    monkeypatch.setattr(ledger, "MOST_OFFERS", 5)
    deciding = Agent(FakeReader(), exported(point=OperatingPoint(policy="always")))
    offers = [deciding.observe("s", Event(time=float(i), text="x")).offer for i in range(20)]
    with pytest.raises(RefusedError, match="found no such offer in stream 's', expected one that was made, and of the"):
        deciding.outcome("s", offers[14], "accepted", time=99.0)
    for offer in offers[15:]:
        deciding.outcome("s", offer, "accepted", time=99.0)
    with pytest.raises(RefusedError, match="found a second outcome"):
        deciding.outcome("s", offers[15], "accepted", time=99.0)
