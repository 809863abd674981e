"""Which tokens a stream keeps, and which streams are in the pool; no model is needed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.student.pages import PAGE
from prism_jax.student.trunks import Trunks

BUDGET = 72
events = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=30), max_size=12)


@given(
    system=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    arriving=events,
    keep=st.sampled_from([0.3, 0.5, 1.0]),
    reserve=st.integers(0, 12),
)
def test_events_are_dropped_by_the_rule(system, arriving, keep, reserve):
    """Oldest first, only when the budget is exceeded, down to a share of it; system part and newest event stay."""
    trunks, kept = Trunks(BUDGET, keep, 4), []
    trunks.open("a", system)
    for event in arriving:

        def used(some, coming=event):
            return len(system) + sum(map(len, some)) + len(coming) + reserve

        if used(kept) > BUDGET:
            while kept and used(kept) > keep * BUDGET:
                kept = kept[1:]
        trunks.append("a", event, reserve)
        kept = [*kept, event]
        assert trunks["a"].ids == [*system, *(token for one in kept for token in one)]


def read(trunks, *group):
    """What the engine does with a group: it holds the trunks, and reads what is not in the pool."""
    for trunk in trunks.hold(group):
        trunk.length += len(trunk.unread)


def test_the_stream_that_was_idle_longest_is_parked_and_read_again():
    trunks = Trunks(3 * PAGE, 0.5, 4)
    for name in ("a", "b", "c"):
        trunks.open(name, [1] * (PAGE + 1))  # two pages each
        read(trunks, name)
    assert [len(trunks[name].pages) for name in ("a", "b", "c")] == [0, 2, 2]
    assert trunks["a"].unread == [1] * (PAGE + 1) and trunks["c"].unread == []
    read(trunks, "b")
    read(trunks, "a")
    assert trunks["c"].length == 0 and trunks.resident == 2
    held = [page for name in ("a", "b") for page in trunks[name].pages]
    assert sorted(held) == [1, 2, 3, 4], "every page belongs to one stream"


def test_dropped_events_free_the_pages_and_the_rest_is_read_again():
    trunks = Trunks(2 * PAGE, 0.5, 2)
    trunks.open("a", [1])
    trunks.append("a", [2] * 200, 0)
    read(trunks, "a")
    trunks.append("a", [3] * 100, 0)
    assert (trunks["a"].pages, trunks["a"].length) == ([], 0)
    assert trunks["a"].unread == [1, *[3] * 100]


def test_groups_fit_into_the_pool_and_into_a_batch():
    trunks = Trunks(4 * PAGE, 0.5, 4)
    for name in "abcde":
        trunks.open(name, [1] * PAGE)
    assert list(trunks.groups([(name, 0) for name in "abcde"], 3)) == [["a", "b", "c"], ["d", "e"]]
    assert list(trunks.groups([(name, 1) for name in "abcde"], 3)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(trunks.groups([], 3)) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.open("a", [1]), "stream: found 'a' open already, expected a new one"),
        (lambda t: t.open("b", [1] * 73), "system: found 73 tokens, expected at most the budget of 72"),
        (lambda t: t["b"], "stream: found 'b', expected one of the 1 open streams"),
        (lambda t: t.close("b"), "stream: found 'b', expected one of the 1 open streams"),
    ],
)
def test_bad_requests_are_named_and_change_nothing(call, message):
    trunks = Trunks(BUDGET, 0.5, 1)
    trunks.open("a", [1, 2, 3])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(trunks)
    assert trunks["a"].ids == [1, 2, 3]
