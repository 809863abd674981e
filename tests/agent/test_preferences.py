"""What a person asked for changes exactly the decisions that it should, and is shown before it is saved."""

import dataclasses
import datetime
import itertools
import math
import sqlite3
import zoneinfo

import pytest
from fake_reader import FakeReader, exported
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records import OfferOutcome
from prism_jax.agent.replay import replay
from prism_jax.agent.settings import AgentSettings, Critical, Terms
from prism_jax.agent.state import schema
from prism_jax.agent.state.durable import DurableAgent, Events
from prism_jax.agent.state.kept import KeptAgent
from prism_jax.agent.state.partition import Partition, StateError
from prism_jax.agent.state.preferences import LEVELS, Preferences, QuietHours, Silence, keep_preferences, preview
from prism_jax.agent.state.preferences import preferences_of as asked_for
from prism_jax.agent.state.reading import all_records
from prism_jax.agent.state.store import StateStore
from prism_jax.agent.steps import Observation
from prism_jax.people.store import SCHEMA as PEOPLE
from prism_jax.streams import Event

SETTINGS = AgentSettings(Terms(exported().point), Critical(frozenset({"fire"})))
HOUR = 3600.0


class Clock:
    now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def store(tmp_path):
    with StateStore(tmp_path, partitions=2) as store:
        yield store


def agent_on(store, clock, slow=False):
    return DurableAgent(FakeReader(slow=slow), exported(slow=slow), store, SETTINGS, clock=clock)


def observation(number, text=None, costs=None, person="ada"):
    return Observation("s", Event(time=60.0 * number, text=text or f"event {number}"), costs=costs, person=person)


def prefer(store, preferences, person="ada"):
    partition = store.of(person)
    with partition.transaction():
        keep_preferences(partition, person, preferences)


def decided(agent, *items):
    ((answers,),) = ([answer for answer in agent.answer([Events(items)])],)
    assert not isinstance(answers, Exception), answers
    return answers


@pytest.mark.parametrize("cost", ["1", True, -1.0, 0.0, math.nan, math.inf])
def test_a_cost_that_is_none_is_refused_whatever_its_person_wants(cost, store):
    prefer(store, Preferences(-1))
    (found,) = agent_on(store, Clock()).answer([Events((observation(0, costs={"c_fa": cost}),))])
    assert isinstance(found, RefusedError) and "costs.c_fa: found" in str(found)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_multiplies_the_cost_of_an_unwanted_offer_by_a_power_of_two(level, store, tmp_path):
    agent = agent_on(store, Clock())
    prefer(store, Preferences(level))
    decided(agent, observation(0), observation(1, costs={"c_fa": 3.0, "margin": 0.01}))
    decided(agent, observation(0, person="bob")._replace(stream="bobs"))
    other, of_event, own = sorted(all_records(tmp_path), key=lambda record: record["stream"])
    point = SETTINGS.terms.point
    assert of_event["costs"] == {"c_fa": point.c_fa * 2.0**-level, "c_fn": point.c_fn}
    assert own["costs"]["c_fa"] == 3.0 * 2.0**-level and own["trigger"]["margin"] == 0.01
    assert other["costs"]["c_fa"] == point.c_fa


@pytest.mark.parametrize(
    "preferences",
    [
        Preferences(silence=Silence("snoozed", Clock.now + HOUR)),
        Preferences(silence=Silence("muted", Clock.now + HOUR)),
        Preferences(hours=QuietHours("00:00", "23:59", "UTC", Clock.now + HOUR)),
    ],
)
def test_who_wants_quiet_has_it_until_its_end_but_for_critical_events(preferences, store, tmp_path):
    clock = Clock()
    agent = agent_on(store, clock, slow=True)
    prefer(store, preferences)
    quiet = decided(agent, *(observation(number) for number in range(40)))
    assert {answer["reason"] for answer in quiet} == {f"silent: {preferences.quiet(clock.now)}"}
    assert not any(kind == "think" for kind, _ in agent.reader.calls), "its outcome was known"
    (fire,) = decided(agent, observation(40, "fire"))
    assert fire["speak"]
    clock.now += HOUR
    after = decided(agent, *(observation(number) for number in range(41, 80)))
    assert sum(answer["speak"] for answer in after) > 5
    lines = [(f"log:{i}", record) for i, record in enumerate(all_records(tmp_path))]
    assert [record["spoke"] for record in replay(lines)] == [record["spoke"] for _, record in lines]
    assert [record.get("quiet") for _, record in lines][:40] == [preferences.quiet(Clock.now)] * 40


def test_quiet_holds_for_later_events_of_a_new_stream_that_leave_its_person_out(tmp_path):
    with StateStore(tmp_path, partitions=1) as store:
        prefer(store, Preferences(silence=Silence("muted", Clock.now + HOUR)))
        agent = KeptAgent(FakeReader(slow=False), exported(slow=False), store, SETTINGS, clock=Clock())
        items = [observation(number, person=None if number else "ada") for number in range(40)]
        assert {found.reason for found in agent.observe_many(items)} == {"silent: muted"}


def test_a_host_may_say_that_somebody_is_busy_and_its_word_stays(store):
    agent = agent_on(store, Clock())
    prefer(store, Preferences(silence=Silence("snoozed", Clock.now + HOUR)))
    (answer,) = decided(agent, observation(0, costs={"quiet": "busy"}))
    assert answer["reason"] == "silent: busy"
    (refused,) = agent.answer([Events((observation(1, costs={"quiet": "asleep"}),))])
    assert "costs.quiet: found 'asleep', expected one of snoozed, muted, quiet hours, busy" in str(refused)


ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
TIMES = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))


@given(TIMES, TIMES, st.sampled_from(ZONES), st.integers(0, 2 * 10**9))
def test_quiet_hours_cover_the_minutes_from_begin_to_end_of_the_local_day(begin, end, zone, now):
    if begin == end:
        with pytest.raises(ValueError, match="expected another time than the begin"):
            QuietHours(begin, end, zone, 3e9)
        return
    minutes = [f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(60)]
    covered = set(itertools.takewhile(lambda time: time != end, (minutes * 2)[minutes.index(begin) :]))
    local = datetime.datetime.fromtimestamp(now, zoneinfo.ZoneInfo(zone))
    hours = QuietHours(begin, end, zone, 3e9)
    assert hours.cover(float(now)) == (f"{local.hour:02}:{local.minute:02}" in covered)
    assert not dataclasses.replace(hours, until=float(now)).cover(float(now))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Preferences(3), "level: found 3, expected -2 to 2"),
        (lambda: Preferences(True), "level: found True"),
        (lambda: Silence("busy", 1.0), "reason: found 'busy', expected snoozed or muted"),
        (lambda: Silence("muted", float("nan")), "until: found nan, expected a time"),
        (lambda: QuietHours("24:00", "07:00", "UTC", 1.0), "begin: found '24:00', expected a time"),
        (lambda: QuietHours("22:00", "07:00", "../etc/passwd", 1.0), "zone: found '../etc/passwd', expected a time"),
        (lambda: QuietHours("22:00", "07:00", "", 1.0), "zone: found '', expected a time zone"),
    ],
)
def test_what_nobody_can_prefer_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_preferences_outlive_a_restart_and_go_with_their_person(tmp_path):
    wanted = Preferences(1, Silence("muted", 5.0), QuietHours("22:00", "07:00", "Europe/Paris", 9.0))
    with StateStore(tmp_path, partitions=2) as store:
        prefer(store, wanted)
    with StateStore(tmp_path) as store:
        assert asked_for(store.of("ada"), "ada") == wanted
        store.forget_person("ada")
        assert asked_for(store.of("ada"), "ada") == Preferences()
        store.of("ada").rows("INSERT INTO preferences VALUES ('ada', '{}')")
        with pytest.raises(StateError, match="preferences: found what is none"):
            asked_for(store.of("ada"), "ada")


@pytest.mark.parametrize("slow", [False, True])
def test_a_preview_is_what_the_level_would_have_done(slow, tmp_path):
    """Beside stores in which the level was there from the beginning.

    With a slow pass the margin moves with the costs: who thinks is then part of what the level changes.
    """
    count, clock, spoke = 120, Clock(), {}
    for level in LEVELS if not slow else (0,):
        with StateStore(tmp_path / f"level {level}", partitions=2) as store:
            prefer(store, Preferences(level))
            items = [observation(number, costs={"c_fa": 1.5} if number % 4 == 0 else None) for number in range(count)]
            answers = decided(agent_on(store, clock, slow), *items)
            spoke[level] = {answer["id"] for answer in answers if answer["speak"]}
    with StateStore(tmp_path / "level 0") as store:
        agent = agent_on(store, clock, slow)
        made = sorted(spoke[0], key=lambda name: int(name.split("/")[1]))
        accepted = set(made[::2])
        for offer in made:
            outcome = "accepted" if offer in accepted else "dismissed"
            agent.answer([OfferOutcome("s", offer, outcome, 60.0 * count)])
        clock.now += 10
        decided(agent, observation(count))
    shown = preview(tmp_path / "level 0", "ada", LEVELS, since=0.0, c_fa=SETTINGS.terms.point.c_fa)
    assert (shown[0].fewer, shown[0].lost, shown[0].more, shown[0].expected) == (0, 0, 0, 0.0)
    assert {one.decisions for one in shown.values()} == {count + 1}
    for level, own in spoke.items() if not slow else ():
        fewer, more = spoke[0] - own, own - spoke[0]
        assert shown[level].fewer - (shown[level].fewer > 0 and f"s/{count}" in spoke[0]) == len(fewer)
        assert shown[level].lost == len(fewer & accepted)
        assert abs(shown[level].more - len(more)) <= 1  # and the last event, in no other store
        assert 0 <= shown[level].expected <= shown[level].more
    assert shown[-2].fewer > 3 and shown[2].more > 3
    (recent,) = preview(tmp_path / "level 0", "ada", [2], since=clock.now - 1, c_fa=1.0).values()
    assert recent.decisions == 1
    (other,) = preview(tmp_path / "level 0", "bob", [2], since=0.0, c_fa=1.0).values()
    assert other == (0, 0, 0, 0, 0, 0.0)


def test_streams_of_which_nothing_came_for_long_are_deleted_with_every_trace(tmp_path):
    clock = Clock()
    with StateStore(tmp_path, partitions=4, clock=clock) as store:
        agent = agent_on(store, clock)
        offers = decided(agent, *(observation(n)._replace(stream="canary") for n in range(30)))
        made = [answer["id"] for answer in offers if answer["speak"]]
        agent.answer([OfferOutcome("canary", made[-1], "accepted", 5000.0)])
        assert store.of("ada").people.waits_for("ada") == made[0], "her alarm waits for an offer of the stream"
        known = store.of("ada").people.person("ada")
        decided(agent, observation(0))
        clock.now += 10 * HOUR
        decided(agent, observation(1))
        number = store.number_of("ada")
        assert agent.expire(number, clock.now - 20 * HOUR) == []
        assert agent.expire(number, clock.now - 5 * HOUR) == ["canary"]
        for other, _ in store.made():
            assert agent.expire(other, clock.now - 5 * HOUR) == []
        assert [record["event"] for record in all_records(tmp_path)] == [0, 1]
        after = store.of("ada").people.person("ada")
        assert (after.belief, after.answers) == (known.belief, known.answers), "what was learnt stays"
        assert after.alarm != known.alarm, "the alarm has counted the worse answer to the offer it waited for"
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
        (again,) = decided(agent, observation(0)._replace(stream="canary", person="bob"))  # the name is free
        assert again["id"] == "canary/0" and again["person"] == "bob"


def test_claims_are_deleted_where_their_partition_was_closed_for_those_of_the_streams(tmp_path):
    clock = Clock()
    with StateStore(tmp_path, partitions=16, most_open=2, clock=clock) as store:
        agent = agent_on(store, clock)
        for number in range(40):
            decided(agent, observation(0, person=f"person {number}")._replace(stream=f"canary {number}"))
        store.close_idle()
        clock.now += 10 * HOUR
        for _, number in itertools.product(range(2), range(16)):
            agent.expire(number, clock.now - HOUR)
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]


def test_a_partition_of_the_first_format_is_brought_up_to_date(tmp_path):
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as file:
        file.executescript(schema._FIRST + PEOPLE)
        file.execute("INSERT INTO streams (name, person, kind) VALUES ('s', 'ada', 'events')")
        file.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        file.execute("PRAGMA user_version = 1")
    file.close()
    partition = Partition(path, owner="me")
    assert partition.stream("s").person == "ada"
    with partition.transaction():
        keep_preferences(partition, "ada", Preferences(-1))
    partition.close()
    partition = Partition(path, owner="me")
    assert asked_for(partition, "ada").level == -1
    partition.rows(f"PRAGMA user_version = {schema.FORMAT + 1}")
    partition.close()
    with pytest.raises(StateError, match=f"format: found {schema.FORMAT + 1}, expected {schema.FORMAT}"):
        Partition(path, owner="me")
