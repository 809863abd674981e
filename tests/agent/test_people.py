"""The person in the agent: what answers change, exactly once; records, replay, alarm; and deletion."""

import json
import math

import numpy as np
import pytest
from batches import in_mind
from fake_reader import Failing, FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.personal import KnownPerson, Prediction
from prism_jax.agent.records import encode
from prism_jax.agent.records_file import RecordsFile, parse_record, remove_person
from prism_jax.agent.replay import Changes, replay
from prism_jax.agent.settings import AgentSettings, Critical, PeopleSettings, Terms
from prism_jax.agent.signals import Signals
from prism_jax.agent.state.kept import KeptAgent, store_of_one
from prism_jax.decision import alarm
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.person import Belief, Population, believe, clipped_log_odds, optimism, predict, update
from prism_jax.people.exports import StoreError
from prism_jax.streams import Candidate, Event

POPULATION = Population(0.8, -0.2, 0.9, 0.02)
TWO = (Candidate(text="Tea?"), Candidate(text="Coffee?"))
STATED = Prediction("ann", 0.5, 0.5, 0.4)
START = (0.0,) * alarm.COMPONENTS
"""An alarm before the first answer."""


def agent_with(population=POPULATION, people=None, **point):
    point = OperatingPoint(**{"policy": "static", "margin": 0.0, **point})
    settings = AgentSettings(Terms(point), people=people or PeopleSettings())
    return Agent(FakeReader(), exported(point=point), settings, in_mind(settings.people, population))


def alarm_of(people):
    return people.of("ann").person("ann").alarm


def event(n):
    return Event(time=float(n), text=f"event {n}")


def live(agent, count, people=("ann", "bob"), accepts=lambda n: n % 3 == 0):
    """Events of one stream per person; every offer is answered before the next event. Gives decisions and lines."""
    decisions, lines = [], []
    for n in range(count):
        person = people[n % len(people)]
        found = agent.observe(f"stream of {person}", event(n), TWO, person=person)
        decisions.append(found)
        lines.append(encode(found.record()))
        if found.spoke:
            outcome = "accepted" if accepts(n) else "dismissed"
            lines.append(encode(agent.outcome(found.stream, found.offer, outcome, n + 0.5).record()))
    return decisions, lines


def test_an_offer_without_signals_says_nothing_of_a_person_and_holds_up_no_alarm():
    """Event 2 is critical, so it offers without an answer of the reader."""
    point = OperatingPoint(policy="never", margin=0.0)
    settings = AgentSettings(Terms(point), Critical(frozenset({"event 2"})))
    agent = Agent(Failing(), exported(point=point), settings, in_mind(settings.people, POPULATION))
    found = [agent.observe("s", event(n), TWO, person="ann") for n in range(3)]
    assert (found[2].offer, found[2].unanswered) == ("s/2", "the engine is away")
    assert agent.people.of("ann").waits_for("ann") is None
    agent.outcome("s", "s/2", "accepted", 2.5)
    assert agent.people.known("ann").answers == 0
    assert agent.observe("s", event(3), TWO, person="ann").unanswered is None


def test_decisions_follow_the_layer_of_docs_maths_section_13():
    """What the agent learns is what the formulas give, answer by answer, on the log-odds of the offer it made."""
    decisions, _ = live(agent_with(), 60)
    beliefs, answers = {}, {}
    for n, found in enumerate(decisions):
        belief = beliefs.get(found.person, believe(POPULATION))
        content = found.fast.accept[found.fast.best]
        z = math.log(content / (1 - content))
        own = predict(belief, z, POPULATION)
        assert found.p_accept == pytest.approx(1 / (1 + math.exp(-own)), abs=1e-12)
        assert found.known.answers == answers.get(found.person, 0)
        if found.spoke:
            beliefs[found.person] = update(belief, z, float(n % 3 == 0), POPULATION)
            answers[found.person] = found.known.answers + 1
    assert sum(answers.values()) > 20
    assert len({round(found.known.belief.mean, 6) for found in decisions}) > 20


def test_a_person_without_answers_and_a_store_that_nobody_uses_change_nothing_else():
    blind = Agent(FakeReader(), exported(point=OperatingPoint(policy="static", margin=0.0)))
    plain = Population(1.0, 0.0, 1e-9, 0.0)
    with_store = agent_with(plain)
    for n in range(20):
        a, c = blind.observe("s", event(n), TWO), with_store.observe("t", event(n), TWO)
        b = with_store.observe("s", event(n), TWO, person="ann")
        assert b.p_accept == pytest.approx(a.p_accept, abs=1e-9)
        assert (b.spoke, b.fast) == (a.spoke, a.fast)
        assert c.known is None and "person" not in c.record() and "person" not in a.record()
    named = blind.observe("u", event(0), TWO, person="ann")
    assert named.record()["person"] == {"name": "ann"}  # for a log from which a population can be fitted


def test_doubt_counts_in_favour_of_an_offer_where_silence_is_cheap():
    known = KnownPerson(POPULATION, Belief(-0.3, 0.49), 4, optimistic=True)
    signals = Signals(0.5, (0.3, 0.6), 0.5, (0.3, 0.6), 1)
    for ratio, c in ((0.1, 0.5), (0.5, 0.5), (0.8, 0.3125), (1.0, 0.25), (1.01, 0.0), (4.0, 0.0), (0.0, 0.0)):
        assert optimism(ratio) == c
        hoped, predicted = known.optimistic_prediction(signals, ratio).accept, known.predicted(signals).accept
        np.testing.assert_allclose(clipped_log_odds(hoped) - clipped_log_odds(predicted), c * 0.7, atol=1e-12)
        for threshold in (0.2, 0.4, 0.7):
            lowered = known.threshold_on_predicted(threshold, ratio)
            assert [p >= threshold for p in hoped] == [p >= lowered for p in predicted]
        assert [known.threshold_on_predicted(end, ratio) for end in (0.0, 1.0, math.inf)] == [0.0, 1.0, math.inf]
    never = known._replace(optimistic=False)
    assert never.optimistic_prediction(signals, 0.5) == never.predicted(signals)


def test_certain_probabilities_stay_finite():
    known = KnownPerson(POPULATION, Belief(0.3, 0.5), 1, optimistic=True)
    found = known.predicted(Signals(0.5, (0.0, 1.0), 0.5, (0.0, 1.0), 1)).accept
    assert 0 <= found[0] < 1e-10
    assert 1 - 1e-10 < found[1] <= 1


def test_a_stream_is_one_persons():
    agent = agent_with()
    agent.observe("s", event(0), person="ann")
    assert agent.observe("s", event(1)).person == "ann"
    with pytest.raises(RefusedError, match="stream 's': person: found another person than before, expected one person"):
        agent.observe("s", event(2), person="bob")
    agent.observe("t", event(0))
    with pytest.raises(RefusedError, match="found a person, and none on its first event"):
        agent.observe("t", event(1), person="bob")


def test_replay_decides_again_for_the_same_person():
    decisions, lines = live(agent_with(c_fn=0.8), 60)
    assert [found.spoke for found in decisions] == [found.p_accept >= found.threshold for found in decisions]
    assert {found.spoke for found in decisions} == {True, False}
    logged = [("log", parse_record(line, "log")) for line in lines]
    again = list(replay(logged))
    assert [json.dumps(one) for one in again] == [json.dumps(one) for _, one in logged]
    decided = [one for _, one in logged if one["kind"] == "decision"]
    bolder = [one for one in replay(logged, Changes(point={"c_fn": 5.0})) if one["kind"] == "decision"]
    for old, new in zip(decided, bolder, strict=True):
        assert new["person"] == old["person"]
        assert new["p_accept"] == old["p_accept"]
        assert new["spoke"] == (old["p_accept"] >= 1 / 6)


def answer(people, offer, stated, outcome):
    """An offer that is answered before the next one."""
    people.offered(stated.person, offer)
    people.learn(offer, stated, outcome, 0.0)


def test_the_alarm_of_a_person_rings_when_answers_contradict_what_was_stated():
    """A person who declines whatever is stated; the layer has no drift and little spread, so it cannot follow."""
    people, rang_at = in_mind(PeopleSettings(alarm=0.1), Population(1.0, 0.0, 0.05, 0.0)), None
    stubborn = people.of("ann")
    for n in range(60):
        answer(people, f"s/{n}", Prediction("ann", 0.6, 0.7, 0.4), "dismissed")  # the alarm watches the second
        if people.rang and rang_at is None:
            rang_at = n
            assert people.rang == [stubborn.person("ann")]
    along = alarm.along(np.full(60, 0.7), np.zeros(60), np.zeros(60, int), 0.4)
    assert alarm.log_martingale(np.array(stubborn.person("ann").alarm)) == pytest.approx(along[-1])
    assert rang_at == int(np.argmax(along >= np.log(2 / 0.1)))  # the first person's level is alpha / 2
    assert len(people.rang) == 1 and people.alarms().rang == (1,)
    assert people.alarms().log_product == pytest.approx(along[-1])


def test_overlapping_offers_with_quick_refusals_ring_no_alarm():
    """Two offers at a time, calibrated at 1/2, and refusals come first: only offers that did not overlap are bet on."""
    rng, rang = np.random.default_rng(0), 0
    for _ in range(20):
        people = in_mind(None, Population(1.0, 0.0, 0.01, 0.0))
        for n in range(60):
            both = [(f"s/{n}-{i}", rng.random() < 0.5) for i in range(2)]
            for offer, _ in both:
                people.offered("ann", offer)
            for offer, accepted in sorted(both, key=lambda one: one[1]):
                people.learn(offer, STATED, "accepted" if accepted else "dismissed", float(n))
        rang += bool(people.rang)
        assert people.of("ann").person("ann").answers == 120
    assert rang <= 1  # the level of the first person is 0.025; where the first answers were bet on, 9 of 20 rang


def test_an_offer_whose_stream_has_ended_is_not_waited_for():
    people = in_mind(None, POPULATION)
    for offer in ("s/1", "t/5"):
        people.offered("ann", offer)
    people.learn("t/5", STATED, "accepted", 1.0)
    assert alarm_of(people) == START
    people.withdrawn("t/5", STATED)
    assert alarm_of(people) == START
    people.withdrawn("s/1", STATED)
    lost = alarm_of(people)
    assert lost == pytest.approx(alarm.withdraw(alarm.start(), 0.5, 0.4)) and people.known("ann").answers == 1
    answer(people, "t/6", STATED, "accepted")
    assert alarm_of(people) == pytest.approx(alarm.update(np.array(lost), 0.5, 1.0, 0.4))


def test_an_offer_is_withdrawn_once_though_it_is_read_again():
    people = in_mind(None, POPULATION)
    for _ in range(2):
        people.offered("ann", "s/1")
        people.withdrawn("s/1", STATED)
        assert alarm_of(people) == pytest.approx(alarm.withdraw(alarm.start(), 0.5, 0.4))
    assert people.of("ann").person("ann").answers == 0


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_forgotten_stream_withdraws_its_open_offers(is_kept, tmp_path):
    """In memory, and in a state that is opened again."""
    point = OperatingPoint(policy="always", margin=0.0)
    settings = AgentSettings(Terms(point))
    with store_of_one(tmp_path, POPULATION) as store:
        kept = KeptAgent(FakeReader(), exported(point=point), store, settings)
        agent = kept if is_kept else agent_with(policy="always")
        found = agent.observe("s", event(0), TWO, person="ann")
        agent.forget("s")
        assert agent.people.of("ann").waits_for("ann") is None
        person = agent.people.of("ann").person("ann")
    expected = alarm.withdraw(alarm.start(), found.p_accept, 1e-9)  # always offering is a threshold of 0
    assert person.alarm == pytest.approx(expected)
    assert sum(person.alarm) < 0
    with store_of_one(tmp_path) as store:
        assert store.of("ann").people.person("ann").alarm == (person.alarm if is_kept else START)


@pytest.mark.slow
def test_refusals_that_end_the_stream_ring_no_alarm():
    """Half of the refusals of offers that are calibrated at 1/2; were these free, the alarms of 34 of 40 would ring."""
    rng, rang = np.random.default_rng(0), 0
    for _ in range(40):
        people = in_mind(None, Population(1.0, 0.0, 0.01, 0.0))
        for n in range(200):
            people.offered("ann", f"s{n}/0")
            accepted = rng.random() < 0.5
            if not accepted and rng.random() < 0.5:
                people.withdrawn(f"s{n}/0", STATED)
            else:
                people.learn(f"s{n}/0", STATED, "accepted" if accepted else "dismissed", float(n))
        rang += bool(people.rang)
    assert rang <= 1


def test_forgetting_people_does_not_raise_the_product():
    people = in_mind(None, POPULATION)
    for n in range(30):
        for name, outcome in (("ann", "dismissed"), ("bob", ("accepted", "dismissed")[n % 2])):
            answer(people, f"{name}/{n}", Prediction(name, 0.5, 0.5, 0.4), outcome)
    before = people.alarms().log_product
    people.of("bob").forget("bob")
    assert people.alarms().people == 1
    assert people.alarms().log_product == pytest.approx(before)


def test_answers_of_a_deleted_person_that_are_read_again_count_once_in_the_product():
    """As after a restart on an input that still has them: the person joins anew, under a number of their own."""
    people = in_mind(None, POPULATION)
    for turn in range(3):
        for n in range(30):
            answer(people, f"ann/{n}", STATED, "dismissed")
        assert people.of("ann").person("ann").number == turn + 1
        before = alarm.log_martingale(np.array(alarm_of(people)))
        assert people.alarms().log_product == pytest.approx(before) and before > 1
        people.of("ann").forget("ann")
    assert people.alarms().log_product == 0


def test_the_levels_of_others_stay_where_people_are_deleted(tmp_path):
    """Ann is deleted before bob's alarm could ring; it rings at the level of the second person all the same."""
    people, rang_at = in_mind(PeopleSettings(alarm=0.1), Population(1.0, 0.0, 0.05, 0.0)), None
    for n in range(60):
        for name in ("ann", "bob") if n == 0 else ("bob",):
            answer(people, f"{name}/{n}", Prediction(name, 0.7, 0.7, 0.4), "dismissed")
        people.of("ann").forget("ann")
        if people.rang and rang_at is None:
            rang_at = n
    along = alarm.along(np.full(60, 0.7), np.zeros(60), np.zeros(60, int), 0.4)
    assert rang_at == int(np.argmax(along >= np.log(2 * 3 / 0.1))) > int(np.argmax(along >= np.log(2 / 0.1)))


def test_an_answer_that_cannot_be_kept_changes_nothing(monkeypatch):
    agent = agent_with(people=PeopleSettings(recalibrate=True), policy="always")
    found = agent.observe("s", event(0), TWO, person="ann")
    before, learn = agent.people.known("ann"), agent.people.of("ann").learn

    def fails(*arguments, **facts):
        raise StoreError("people in memory: found a full disk")

    monkeypatch.setattr(agent.people.of("ann"), "learn", fails)
    with pytest.raises(StoreError):
        agent.outcome("s", found.offer, "accepted", 1.0)
    assert agent.people.known("ann") == before
    monkeypatch.setattr(agent.people.of("ann"), "learn", learn)
    agent.outcome("s", found.offer, "accepted", 1.0)
    assert agent.people.known("ann").answers == 1
    assert alarm_of(agent.people) != START


def test_recalibration_follows_everybody_and_is_kept():
    settings = PeopleSettings(recalibrate=True)
    people = in_mind(settings, Population(1.0, 0.0, 0.3, 0.0))
    for n in range(200):
        people.learn(f"s/{n}", Prediction(f"person {n % 50}", 0.6, 0.6, 0.4), "dismissed", float(n))
    moved = people.known("somebody new").population
    assert moved.bias < -0.5
    people.settings = PeopleSettings()
    assert people.known("somebody new").population == people.population


def test_a_deleted_persons_records_leave_the_file(tmp_path):
    names, records, target = ("ann with a rare name", "bob"), tmp_path / "records.jsonl", tmp_path / "elsewhere"
    _, lines = live(agent_with(), 20, names)
    target.write_bytes(b"".join(lines))
    records.symlink_to(target)
    (tmp_path / ".elsewhere.erasing").write_bytes(b"".join(lines))  # of a call that was killed
    kept = [line for line in lines if b"rare name" not in line]
    assert remove_person(records, names[0]) == len(lines) - len(kept) > 5
    assert target.read_bytes() == b"".join(kept)
    assert records.is_symlink() and not (tmp_path / ".elsewhere.erasing").exists()
    assert remove_person(records, names[0]) == 0
    file = RecordsFile(records, iter(kept))
    with pytest.raises(ValueError, match="found another agent writing to it"):
        remove_person(records, "bob")
    file.close()


def test_forgetting_a_person_ends_their_streams_and_nobody_elses():
    agent = agent_with(policy="always")
    ann, bob = (agent.observe(f"stream of {name}", event(0), TWO, person=name) for name in ("ann", "bob"))
    agent.forget_person("ann")
    assert list(agent.reader.trunks) == ["stream of bob"]
    with pytest.raises(RefusedError, match="found no such offer"):
        agent.outcome(ann.stream, ann.offer, "accepted", 1.0)
    agent.outcome(bob.stream, bob.offer, "accepted", 1.0)
