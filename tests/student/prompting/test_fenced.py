"""Untrusted texts as JSON, for prompts of other models."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from prism_jax.streams import Event
from prism_jax.streams.fenced import fenced, fenced_events

texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip)


@hypothesis.given(texts)
def test_a_fenced_text_is_one_line_that_decodes_to_the_text(text):
    assert json.loads(fenced(text)) == text
    assert len(fenced(text).splitlines()) == 1


def test_no_text_is_null():
    assert fenced(None) == "null"


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_the_newest_events_are_kept_with_the_time_since_the_one_before(most):
    events = [Event(time=60.0 * i * i, text=f'event "{i}"\n{{') for i in range(4)]
    lines = [json.loads(line) for line in fenced_events(events, most).split("\n")]
    since = [{}, {"since": "+1m"}, {"since": "+3m"}, {"since": "+5m"}]
    whole = [{"event": f'event "{i}"\n{{', **since[i]} for i in range(4)]
    assert lines == ([{"left_out": 4 - most}] if most < 4 else []) + whole[max(0, 4 - most) :]
