"""The questions to a teacher."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from prism_jax.labelling.teacher.prompts import PromptSettings, instructions, question
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.prompting.template import PromptConfig

texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip)


def test_the_prompt_carries_the_students_own_template():
    settings = PromptSettings(offers="given")
    assert settings.system == PromptConfig().system
    slow, fast = (instructions(which, settings) for which in ("slow", "fast"))
    assert slow.startswith(settings.system) and fast.startswith(settings.system)
    keys = [f'"{key}" ({name}' for key, name in SLOW_FIELDS.items()]
    places = [slow.index(key) for key in [*keys, '"p_need"', '"p_accept"', '"response"']]
    assert places == sorted(places)
    assert all(f'"{key}"' in slow for key in RESPONSE_KEYS)
    assert not any(key in fast for key in [*keys, '"response"'])


def test_a_teacher_is_asked_for_an_offer_of_its_own_and_apart_from_that_whether_it_would_speak():
    own = PromptSettings()
    asked = instructions("slow", own)
    places = [asked.index(key) for key in ('"p_need"', '"response"', '"p_accept"', '"speak"')]
    assert places == sorted(places) and all(f'"{key}"' in asked for key in RESPONSE_KEYS)
    assert '"offer"' in instructions("fast", own) and '"speak"' not in instructions("fast", own)
    listed = [Candidate(text="Mend it."), Candidate()]
    shown = question([Event(time=0.0, text="Types.")], listed, own)
    assert "Offers:" not in shown and "Mend it." not in shown and "an offer" not in shown


@hypothesis.given(st.lists(texts, min_size=1, max_size=4), st.lists(texts, max_size=3))
def test_no_text_leaves_its_fence(events, offers):
    """Every line after the two headings is one JSON value that decodes to the text."""
    content = question(
        [Event(time=0.0, text=text) for text in events],
        [*(Candidate(text=text) for text in offers), Candidate(proposal="Go"), Candidate()],
        PromptSettings(offers="given"),
    )
    lines = content.split("\n")
    assert lines[0] == "Events:" and lines[len(events) + 1 : len(events) + 3] == ["", "Offers:"]
    assert [json.loads(line)["event"] for line in lines[1 : len(events) + 1]] == events
    assert [json.loads(line) for line in lines[len(events) + 3 :]] == [*offers, "Go", "an offer"]


def test_only_the_newest_events_are_shown():
    content = question([Event(time=float(i), text=f"e{i}") for i in range(9)], [Candidate()], PromptSettings(events=2))
    assert content.split("\n")[1:4] == ['{"left_out": 7}', '{"event": "e7"}', '{"event": "e8"}']


@pytest.mark.parametrize(("name", "value"), [("events", 0), ("words", 0), ("offers", "none")])
def test_settings_are_checked(name, value):
    with pytest.raises(ValueError, match=f"^{name}: found {value!r}, expected"):
        PromptSettings(**{name: value})
