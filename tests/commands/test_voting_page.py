"""The page for people as text: the same for the same events, its policy, and no text of others that is markup."""

import json
import re

import pytest

from prism_jax.commands.judging import voting_page
from prism_jax.labelling.judges.sampling import common_events, draw_events
from prism_jax.streams import Candidate, Event, Step, Stream

ATTACK = (
    "</script><script>window.hit=1</script><img src=//x.invalid onerror=hit()> \u202egnp.exe \u2028 <!-- {{7*7}} &amp;"
)


def streams(words):
    events = tuple(Event(time=float(i), text=f"{i} {ATTACK}") for i in range(5))
    steps = tuple(Step(event=i, candidates=(Candidate(proposal=f"{words} {ATTACK}"),)) for i in range(4))
    return [Stream(id=f"s{ATTACK}", events=events, steps=steps, domain=ATTACK)]


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])


@pytest.fixture(scope="module")
def page():
    return voting_page(draw_events(common_events({"x": streams("tea"), "y": streams("milk")}, 40), 3, 0), 40)


def test_hostile_texts_are_data_and_nothing_else(page):
    assert page.count("<script") == page.count("</script>") == 2 and page.count("<!--") == 0
    assert not any(mark in page for mark in ("<img", "\u202e", "\u2028", "<style>*"))
    data = data_of(page)
    shown = [words for stream in data["streams"] for _, words, _ in stream]
    assert shown[0] == "0 " + ATTACK.replace("\u202e", r"\u202e").replace("\u2028", r"\u2028")
    assert len(shown) <= 4, "what comes after the last event asked about is not in the page"
    assert all(len(item["proposals"]) == 2 for item in data["items"])
    assert {stream for item in data["items"] for _, stream, *_ in item["silence"]} == {f"s{ATTACK}"}, "as it stands"


def test_the_policy_allows_its_own_script_and_style_only(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in page.replace("http-equiv", "").partition("<script")[0]


def test_the_same_events_make_the_same_page_whatever_the_order_of_systems(page):
    again = common_events({"y": streams("milk"), "x": streams("tea")}, 40)
    assert voting_page(draw_events(again, 3, 0), 40) == page
    other = voting_page(draw_events(again, 3, 1), 40)
    assert data_of(other)["digest"] != data_of(page)["digest"], "progress is that of one page"
