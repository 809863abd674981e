"""What people are asked about: a proportional, seeded sample that tells nothing of systems and loses no place."""

import collections
import dataclasses
import fractions
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_streams import bare, labelled

from prism_jax.labelling.judges.labelling import Place
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.sampling import common_events, draw_events, page_data
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_steps


def stream(name, texts, domain="coding", events=None, of=lambda index: index):
    """A stream with a step at each event that `texts` has; a step has one candidate for each of its texts."""
    steps = tuple(
        Step(event=event, candidates=tuple(Candidate(proposal=text) for text in said)) for event, said in texts.items()
    )
    number = events or max(texts) + 1
    shown = tuple(Event(time=10.0 * i, text=f"{name}: event {of(i)}") for i in range(number))
    return Stream(id=name, events=shown, steps=steps, domain=domain)


ONE = [stream("s", {0: [None], 1: ["tea", "tea"], 2: ["milk"], 3: [None]})]
TWO = [stream("s", {1: ["milk", "tea"], 2: ["milk"], 3: [None]}), stream("other", {0: ["tea"]})]


def test_every_place_of_a_text_is_kept_and_a_text_is_asked_once():
    events = common_events({"one": ONE, "two": TWO}, 40)
    assert [(event.stream.id, event.event) for event in events] == [("s", 1), ("s", 2), ("s", 3)]
    assert [[proposal.text for proposal in event.proposals] for event in events] == [["milk", "tea"], ["milk"], []]
    found = {
        place
        for event in events
        for place in (*event.silence, *itertools.chain(*(proposal.places for proposal in event.proposals)))
    }
    asked = {
        Place(question.digest, *question[:3])
        for streams in (ONE, TWO)
        for one in streams
        for question in questions(one, 40)
        if (one.id, one.steps[question.step].event) in {("s", 1), ("s", 2), ("s", 3)}
        and (question.candidate is None or one.steps[question.step].candidates[question.candidate].said)
    }
    assert found == asked
    assert len(events[0].silence) == 2, "the systems count their steps differently"
    assert len(events[0].proposals[1].places) == 3, "twice in one, once in two"


def test_other_histories_and_systems_without_a_common_event_are_refused():
    other = [stream("s", {1: ["milk"]}, of=lambda index: index + 7)]
    with pytest.raises(ValueError, match=r"stream 's', event 1: found other events in two than in one, expected the"):
        common_events({"one": ONE, "two": other}, 40)
    assert common_events({"one": ONE, "two": [stream("s", {3: [None]}, of=lambda i: i if i > 1 else 9)]}, 2)
    with pytest.raises(ValueError, match="one, two: found no event at which all have a step"):
        common_events({"one": ONE, "two": TWO[1:]}, 40)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 5), st.data())
def test_a_sample_is_proportional_by_domain_and_seeded(sizes, seed, data):
    def part_of(domain, part, size):
        texts = {event: ["a", "b", "c"] for event in range(part, size, 2)}
        return stream(f"{domain}-{part}", texts, domain=f"d{domain}", events=9)

    streams = [part_of(domain, i, size) for domain, size in enumerate(sizes) for i in (0, 1) if i < size]
    events = common_events({"one": streams}, 4)
    count = data.draw(st.integers(1, len(events)))
    drawn = draw_events(events, count, seed)
    assert drawn == draw_events(events, count, seed) and len({event.silence for event in drawn}) == count
    shares = collections.Counter(event.stream.domain for event in drawn)
    for domain, size in enumerate(sizes):
        exact = fractions.Fraction(count * size, len(events))
        assert abs(shares[f"d{domain}"] - exact) < 1
    for _, group in itertools.groupby(drawn, key=lambda event: event.stream.id):
        numbers = [event.event for event in group]
        assert numbers == sorted(numbers)
    runs = [name for name, _ in itertools.groupby(drawn, key=lambda event: event.stream.id)]
    assert len(runs) == len(set(runs)), "a stream is judged in one piece"
    for count in (0, len(events) + 1):
        with pytest.raises(ValueError, match=rf"^sample: found {count}, expected from 1 to the {len(events)} events"):
            draw_events(events, count, seed)


def test_neither_the_order_of_systems_nor_of_their_texts_shows():
    """Over many events, each of two systems' texts comes first about as often, whichever is named first."""

    def saying(words):
        def proposing(step):
            return dataclasses.replace(step, candidates=(Candidate(proposal=f"{words} {step.event}"),))

        return [map_steps(one, proposing) for one in bare(labelled(40))]

    systems = {"a": saying("Always first in the alphabet"), "z": saying("Zuletzt")}
    events = common_events(systems, 40)
    drawn = draw_events(events, len(events), 3)
    swapped = common_events(dict(reversed(systems.items())), 40)
    assert [event[1:] for event in draw_events(swapped, len(swapped), 3)] == [event[1:] for event in drawn]
    first = sum(event.proposals[0].text.startswith("Always") for event in drawn)
    assert len(drawn) > 150 and abs(first / len(drawn) - 0.5) < 0.12
    assert draw_events(events, len(events), 4) != drawn


def test_texts_that_say_null_are_not_asked_and_written_times_are_shown():
    [one] = [stream("s", {0: ["null", " None "], 1: ["tea", "null"]})]
    times = ["1717335890.127", "Day 1, 8:00 PM\u202e"]
    events = [dataclasses.replace(event, time_text=text) for event, text in zip(one.events, times, strict=True)]
    drawn = draw_events(common_events({"x": [dataclasses.replace(one, events=tuple(events))]}, 40), 2, 0)
    data = page_data(drawn, 40)
    assert [[text for text, _ in item["proposals"]] for item in data["items"]] == [[], ["tea"]]
    assert [written for _, _, written in data["streams"][0]] == [None, r"Day 1, 8:00 PM\u202e"]
