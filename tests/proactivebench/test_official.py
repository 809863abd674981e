"""ProactiveBench's scores: mode official against an independent script, bit for bit; mode fixed against its rules."""

import collections
import copy
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from official_reference import judged_as_published, scored_as_published
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.proactivebench.official import (
    Counts,
    Score,
    Verdicts,
    exact_rates,
    official_rates,
    score_traces,
    verdicts_in_files,
    verdicts_of_labels,
)
from prism_jax.proactivebench.published import PublishedRow, check_published, implied_counts, read_published
from prism_jax.proactivebench.tables import published_table, score_table, scores_csv
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.traces import ABSENT, TraceEvent, read_categories, read_traces

texts = st.sampled_from(["Sort the list?", "null", "None", " NULL ", "Open the file?"])
answers = st.one_of(
    st.just(ABSENT),
    st.none(),
    st.lists(st.one_of(texts, st.none(), st.just({"Operation": "search"})), max_size=3),
    st.fixed_dictionaries({"candidate_task": st.lists(texts, max_size=2)}),
)
events = st.lists(st.tuples(answers, st.integers(0, 2**16)), min_size=1, max_size=12)


def plain(drawn):
    """The events as JSON."""
    return [{} if answer is ABSENT else {"agent_response": copy.deepcopy(answer)} for answer, _ in drawn]


@settings(max_examples=80, deadline=None)
@given(events, events)
def test_mode_official_is_the_published_script_bit_for_bit(first, second):
    streams = {"one": first, "two": second}
    traces, expected = {}, []
    for name, drawn in streams.items():
        judged = judged_as_published(plain(drawn), lambda i, one, drawn=drawn: (drawn[i][1] + len(str(one))) % 2 == 0)
        for event in judged[::3]:  # a request for a verdict failed, so the list is shorter
            event.get("judgement", [])[-1:] = []
        expected += judged
        traces[name] = tuple(
            TraceEvent("1", "x", answer, None if "judgement" not in event else tuple(event["judgement"]))
            for (answer, _), event in zip(drawn, judged, strict=True)
        )
    (score,) = score_traces(traces, verdicts_in_files(traces), "official", {"both": ("one", "two")})
    rates, counts = scored_as_published(expected)
    assert score.counts == counts
    assert score.rates == rates
    assert score.events == len(expected)
    assert score_traces(traces, {}, "official", {"more": ("one", "absent")}) == ()


def event(answer, text="x"):
    return TraceEvent("1", text, answer)


def test_mode_fixed_reads_each_event_once():
    trace = (
        event(["a", "b"]),  # one of two accepted
        event(["a", "b"]),  # none accepted
        event(["null"]),  # silence in words
        event([" None ", None]),
        event([]),
        event({"candidate_task": []}),  # a failed request
        event(ABSENT),
        event(["a"]),  # not judged
        event(["a", "b"]),  # one rejected, one missing
        event(["a", "b"]),  # one accepted, one missing
    )
    verdicts = {
        0: Verdicts((False, True)),
        1: Verdicts((False, False)),
        2: Verdicts((True,), silence=False),
        3: Verdicts((False, False), silence=True),
        4: Verdicts((True,), silence=True),
        5: Verdicts((True,), silence=True),
        8: Verdicts((False, None)),
        9: Verdicts((None, True)),
    }
    (score,) = score_traces({"s": trace}, {("s", i): one for i, one in verdicts.items()}, "fixed")
    assert score.counts == Counts(tp=2, fp=1, tn=2, fn=1)
    assert (score.proposals, score.silences, score.failed, score.events) == (5, 3, 2, 10)
    assert score.rates == {
        "Recall": 2 / 3,
        "Precision": 2 / 3,
        "Accuracy": 4 / 6,
        "False-Alarm": 1 / 3,
        "F1-Score": 2 * 2 / (2 * 2 + 1 + 1),
        "Accept Rate": 2 / 3,
    }
    (official,) = score_traces({"s": trace}, {("s", i): one for i, one in verdicts.items()}, "official")
    assert official.counts == Counts(tp=4, fp=5, tn=1, fn=1)  # "null" and the failure are proposals


def test_what_was_never_judged_is_no_rate_and_a_dropped_verdict_is_not_guessed():
    traces = {"s": (event(["a"]), event([]))}
    (score,) = score_traces(traces, {("s", 1): Verdicts((True,), True)}, "fixed")
    assert score.counts == Counts(0, 0, 1, 0)
    assert all(math.isnan(rate) for rate in score.rates.values())
    (score,) = score_traces({"s": (event(["a", "b"]),)}, {("s", 0): Verdicts((True,))}, "fixed")
    assert score.counts == Counts(0, 0, 0, 0)


def test_a_verdict_on_the_word_null_says_nothing_about_silence():
    traces = {"s": (TraceEvent("1", "x", ["null"], (True,)), TraceEvent("1", "x", [None], (True,)))}
    judged = verdicts_in_files(traces)
    assert [judged["s", i].silence for i in range(2)] == [None, True]


def test_missing_streams_are_named_in_mode_fixed():
    (score,) = score_traces({"a": (event([]),)}, {}, "fixed", {"both": ("a", "b")})
    assert (score.streams, score.missing) == (1, ("b",))
    assert "without b" in score_table({"m": (score,)}, "fixed", "judge").to_markdown()


def test_people_judge_what_they_were_shown():
    candidates = (Candidate(text="a", y_accept=1.0), Candidate(text="b", y_accept=0.0), Candidate(text="c"))
    steps = (Step(event=0, candidates=candidates, y_need=0.0), Step(event=1, y_need=1.0), Step(event=2))
    stream = Stream(id="s", events=tuple(Event(time=float(i), text=f"e{i}") for i in range(3)), steps=steps)
    shown = [["a"], ["b"], ["c"], ["other"], [], ["null"]]
    for answer, predictions in zip(shown, ((True,), (False,), (None,), (None,), (True,), (None,)), strict=True):
        found = verdicts_of_labels({"s": (event(answer, "e0"),)}, {"s": stream})
        assert found["s", 0] == Verdicts(predictions, silence=True)
    trace = (event([], "another text"), event([], "e1"), event([], "e2"))
    found = verdicts_of_labels({"s": trace, "unknown": trace}, {"s": stream})
    assert found == {("s", 1): Verdicts((False,), False), ("s", 2): Verdicts((None,), None)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=4, max_size=4), st.integers(0, 5))
def test_the_stabiliser_makes_the_counts_known(cells, more):
    counts = Counts(*cells)
    found = implied_counts(PublishedRow("all", official_rates(counts), sum(cells) + more))
    assert counts in found
    if counts.tp and counts.tn:  # 0 / n does not tell n
        assert found == (counts,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Category,Recall,Total Events\nall,0.5,3,7\n", r"model.csv:2: found more values than columns, expected 3"),
        (b"Category,Total Events\n\xff,3\n", r"model.csv: found bytes that are not UTF-8 at byte 22, expected a CSV"),
        (b"Category,Recall,Total Events\nall,half,3\n", r"model.csv:2: Recall: found 'half', expected a number"),
        (b"Category,Recall,Total Events\nall,0.5,2.5\n", r"model.csv:2: Total Events: found '2.5'"),
    ],
)
def test_a_published_file_is_read_or_the_line_named(content, message, tmp_path):
    (tmp_path / "good.csv").write_text("Category,Recall,Total Events\nall,0.9999999999107143,227\n")
    assert read_published(tmp_path / "good.csv") == (("all", {"Recall": 0.9999999999107143}, 227),)
    (tmp_path / "empty.csv").write_text("\n")
    assert read_published(tmp_path / "empty.csv") == ()
    (tmp_path / "model.csv").write_bytes(content)
    with pytest.raises(StreamError, match=message):
        read_published(tmp_path / "model.csv")


def test_exact_rates_are_undefined_at_zero():
    assert all(math.isnan(rate) for rate in exact_rates(Counts(0, 0, 0, 0)).values())


@needs_checkout
def test_every_published_row_follows_from_one_set_of_counts_bit_for_bit():
    files = [path for path in sorted((CHECKOUT / "eval/results").glob("*.csv")) if read_published(path)]
    assert len(files) >= 16
    for path in files:
        rows = read_published(path)
        scores = []
        for row in rows:
            (counts,) = implied_counts(row)
            assert sum(counts) == row.events, "each event was judged, with one prediction"
            scores.append(Score(row.category, counts, official_rates(counts), row.events, 0, (), 0, 0, 0))
        average, *parts = (score.counts for score in scores)
        assert average == Counts(*(sum(cells) for cells in zip(*parts, strict=True)))
        assert scores_csv(scores).encode() == path.read_bytes()


@needs_checkout
def test_the_published_scores_counted_null_in_words_and_failures_as_proposals():
    categories = read_categories(CHECKOUT / "dataset/test_data/splits.json")
    refuted, found = set(), {}
    for folder in sorted((CHECKOUT / "eval/traces_new").iterdir()):
        rows = read_published(CHECKOUT / "eval/results" / f"{folder.name}.csv")
        found[folder.name] = check_published(rows, read_traces(folder), categories)
        assert all(one.allows(one.official) for one in found[folder.name])
        if not all(one.allows(one.fixed) for one in found[folder.name]):
            refuted.add(folder.name)
    assert {"gpt-4o", "gpt-3.5-turbo", "claude-3-sonnet-20240229", "claude-3-5-sonnet"} <= refuted
    assert "official only" in published_table(found).to_markdown()


@needs_checkout
def test_the_traces_hold_what_the_page_says():
    kinds = collections.Counter()
    for path in sorted((CHECKOUT / "eval/traces_new").glob("*/*.json")):
        for item in json.loads(path.read_text(encoding="utf-8")):
            answer = item["agent_response"]
            kinds["events"] += 1
            kinds["failures"] += isinstance(answer, dict)
            kinds["null in words"] += isinstance(answer, list) and answer[:1] in (["null"], ["None"])
    assert kinds == {"events": 5420, "failures": 12, "null in words": 532}
