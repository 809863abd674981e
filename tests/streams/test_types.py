import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.streams import Candidate, Event, Step, Stream

INFINITE = [math.nan, math.inf, -math.inf]
OUTSIDE = [-0.01, 1.01, *INFINITE]


NAMED = {"id": "a", "domain": "coding", "persona": "expert"}


def _events(*times):
    return tuple(Event(time=time, text="works") for time in times)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        *((Event, {"time": time, "text": "x"}, r"^time: found .*, expected a finite number") for time in INFINITE),
        *((Event, {"time": 0.0, "text": text}, r"^text: found .*, expected what happened") for text in ("", "  \n")),
        *((Candidate, {"text": text}, r"^text: found .*, expected text or null$") for text in ("", " ")),
        *((Candidate, {"response": text}, r"^response: found .*, expected text or null$") for text in ("", " ")),
        (Candidate, {"propensity": 0.0}, r"^propensity: found 0, expected above 0"),
        (Candidate, {"propensity": 1.0, "logged": False}, r"^propensity: found 1 on an offer that was not made"),
        (Candidate, {"y_accept": 1.0, "logged": False}, r"^y_accept: found 1\.0, expected null where the offer was"),
        *((Step, {"event": event}, r"^event: found .*, expected the index of an event$") for event in (-1, True)),
        (Step, {"event": 0, "candidates": ()}, r"^candidates: found none"),
        (Step, {"event": 0, "rationale": {"risk": ""}}, r"^rationale\.risk: found '', expected text$"),
        (Step, {"event": 0, "recorded": {"a": math.nan}}, r"^recorded\.a: found nan, expected a finite number$"),
        (Stream, {"id": "a", "events": ()}, r"^events: found none"),
        *(
            (Stream, {**NAMED, name: "", "events": _events(0.0)}, rf"^{name}: found '', expected a non-empty string$")
            for name in NAMED
        ),
    ],
)
def test_what_a_stream_may_not_hold_is_refused_by_field(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(**fields)


OF_OFFERS = ["y_accept", "propensity", "teacher_accept", "p_accept_true", "p_both_true"]
OF_STEPS = ["y_need", "teacher_need", "p_need_true"]


@pytest.mark.parametrize("value", OUTSIDE)
@pytest.mark.parametrize("name", OF_OFFERS + OF_STEPS)
def test_labels_and_probabilities_lie_in_the_unit_interval(name, value):
    with pytest.raises(ValueError, match=rf"^{name}: found .*, expected .* in \[0, 1\] or null$"):
        Candidate(**{name: value}) if name in OF_OFFERS else Step(event=0, **{name: value})


@settings(deadline=None)
@given(st.lists(st.floats(-1e11, 1e11), min_size=1, max_size=6))
def test_time_may_stand_still_but_not_run_back(times):
    if times == sorted(times):
        assert [event.time for event in Stream(id="a", events=_events(*times), steps=()).events] == times
    else:
        with pytest.raises(ValueError, match=r"^events\[\d\]\.time: found .*, expected at least"):
            Stream(id="a", events=_events(*times), steps=())


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), max_size=4))
def test_steps_follow_the_events_and_share_none(places):
    steps = tuple(Step(event=place) for place in places)
    if places == sorted(set(places)) and max(places, default=0) < 3:
        assert Stream(id="a", events=_events(0.0, 1.0, 2.0), steps=steps).steps == steps
    else:
        with pytest.raises(ValueError, match=r"^steps\[\d\]\.event: found \d, expected above -?\d and below 3"):
            Stream(id="a", events=_events(0.0, 1.0, 2.0), steps=steps)


WRONG_TYPES = {
    'Event(time=True, text="x")': "time: found True, expected a finite number of seconds",
    'Event(time="1", text="x")': "time: found '1', expected a finite number of seconds",
    "Event(time=0, text=None)": "text: found None, expected what happened, in words",
    "Event(time=0, text=3)": "text: found 3, expected what happened, in words",
    "Candidate(text=5)": "text: found 5, expected text or null",
    "Candidate(response=5)": "response: found 5, expected text or null",
    "Candidate(y_accept=True)": "y_accept: found True, expected a label in [0, 1] or null",
    'Candidate(propensity="0.5")': "propensity: found '0.5', expected a probability in [0, 1] or null",
    "Candidate(votes=(True, 1))": "votes[1]: found 1, expected true or false",
    "Candidate(logged=1)": "logged: found 1, expected true, false or null",
    "Step(event=1.0)": "event: found 1.0, expected the index of an event",
    "Step(event=None)": "event: found None, expected the index of an event",
    "Step(event=0, y_need='yes')": "y_need: found 'yes', expected a label in [0, 1] or null",
    "Step(event=0, p_need_true=False)": "p_need_true: found False, expected a probability in [0, 1] or null",
    "Step(event=0, votes=(None,))": "votes[0]: found None, expected true or false",
    "Step(event=0, rationale={'risk': 1})": "rationale.risk: found 1, expected text",
    "Step(event=0, recorded={'call': True})": "recorded.call: found True, expected a finite number",
    "Stream(id=7, events=(Event(time=0, text='x'),), steps=())": "id: found 7, expected a non-empty string",
    "Stream(id='a', events=(Event(time=0, text='x'),), domain=None)": "domain: found None, expected a non-empty string",
}


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_wrong_types_are_named(case, unchecked):
    with pytest.raises(ValueError, match=f"^{re.escape(WRONG_TYPES[case])}$"):
        eval(case)


def test_judges_are_asked_about_what_would_be_said():
    assert Candidate(text="Fix it").said == Candidate(proposal="Fix it").said == "Fix it"
    assert Candidate().said is None and Step(event=0).candidates == (Candidate(),)
    with pytest.raises(ValueError, match=r"^proposal: found 'Mend it' beside a text"):
        Candidate(text="Fix it", proposal="Mend it")
