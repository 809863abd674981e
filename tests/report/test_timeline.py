"""The report's timeline: the stream that it shows, step by step."""

import dataclasses
import math

import numpy as np
import pytest
from report_pages import Page, evaluated, stream, written
from synthetic_scores import IDENTITY, make_scores, make_two_passes

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.evaluation.results import Trace
from prism_jax.report import timeline
from prism_jax.scores import Scores


@pytest.fixture(scope="module")
def arguments():
    return evaluated(make_scores())


def test_the_timeline_shows_signals_threshold_decision_and_texts_of_each_step(arguments):
    evaluation = arguments[0]
    shown = timeline.timeline(evaluation, "stream-3", stream("stream-3"))
    trace = evaluation.trace
    rows = np.flatnonzero(trace.stream == "stream-3")
    assert (shown.shown, shown.total, len(shown.moments)) == (12, 12, 13)
    assert (shown.moments[0].text, shown.moments[0].time, shown.moments[0].decision) == ("Types 0.", "0:00", "")
    for moment, row in zip(shown.moments[1:], rows, strict=True):
        assert moment.number == str(trace.step[row])
        assert moment.text == f"Types {trace.step[row] + 1}."
        assert moment.time == timeline.clock(61.0 * (trace.step[row] + 1))
        assert moment.p_need == f"{trace.p_need[row]:.3f}" and moment.p_accept == f"{trace.p_accept[row]:.3f}"
        assert moment.threshold == f"{trace.threshold[row]:.3f}"
        assert moment.decision == ("offer" if trace.decision[row] else "silent")
        assert moment.slow == trace.slow[row]
        assert moment.y_need == ("yes" if trace.y_need[row] else "no")
        gold = trace.y_need[row] * trace.y_accept[row]
        assert float(moment.cost) == (1 - trace.y_accept[row] if trace.decision[row] else 2 * gold)
    costs = [
        float(moment.cost)
        for name in dict.fromkeys(trace.stream)
        for moment in timeline.timeline(evaluation, name, None).moments
    ]
    assert np.mean(costs) == pytest.approx(evaluation.deployed.realised_cost)


def test_without_the_stream_the_timeline_takes_the_scores_times_and_no_texts(arguments):
    evaluation = arguments[0]
    shown = timeline.timeline(evaluation, "stream-3", None)
    assert [moment.time for moment in shown.moments] == [timeline.clock(30.0 * i) for i in range(12)]
    assert {moment.text for moment in shown.moments} == {""}
    times = np.full_like(evaluation.trace.time, np.nan)
    unknown = dataclasses.replace(evaluation, trace=dataclasses.replace(evaluation.trace, time=times))
    assert {moment.time for moment in timeline.timeline(unknown, "stream-3", None).moments} == {""}


def test_unknown_labels_have_an_unknown_cost():
    evaluation = evaluated(make_scores(logging=True))[0]
    costs = {}
    for name in dict.fromkeys(evaluation.trace.stream):
        for moment in timeline.timeline(evaluation, name, None).moments:
            costs.setdefault(moment.y_accept, set()).add(moment.cost)
    assert costs["unknown"] == {"?"}
    assert "?" not in costs["yes"] | costs["no"]


def test_a_stream_that_lacks_a_step_is_refused(arguments):
    with pytest.raises(ValueError, match="stream 'stream-1': found step 5 in the scores, expected below 5"):
        written(arguments, streams=[stream("stream-1", steps=5)])


def test_long_streams_and_long_texts_are_cut_and_the_page_says_so():
    arguments = evaluated(make_scores(streams=4, steps=300))
    page = Page(written(arguments, streams=[stream("stream-1", steps=300, text="{} " + "x" * 2000)]))
    assert "the first 40 of its 300 steps" in page.text
    assert page.text.count("… (2002 characters)") + page.text.count("… (2003 characters)") == 41
    assert max(map(len, page.texts)) < 700


def test_the_stream_with_most_changes_of_decision_is_shown_and_texts_come_first(arguments):
    trace = arguments[0].trace
    changes = {
        name: int(np.sum(np.diff(trace.decision[trace.stream == name].astype(int)) != 0)) for name in trace.stream
    }
    assert changes[timeline.choose_stream(trace)] == max(changes.values())
    mixed = np.random.default_rng(0).permutation(len(trace.stream))  # rows of a stream need not stand together
    shuffled = type(trace)(**{name: value[mixed] for name, value in vars(trace).items()})
    chosen = timeline.choose_stream(shuffled)
    own = shuffled.decision[shuffled.stream == chosen].astype(int)
    assert np.sum(np.diff(own) != 0) == max(
        np.sum(np.diff(shuffled.decision[shuffled.stream == name].astype(int)) != 0) for name in changes
    )
    assert timeline.choose_stream(trace, {"stream-9": None, "elsewhere": None}) == "stream-9"
    assert timeline.choose_stream(trace, {"elsewhere": None}) == timeline.choose_stream(trace)


def small_trace(streams):
    """A trace of streams given as pairs of decisions and answers."""
    rows = [(f"stream {i}", step, *row) for i, (_, rows) in enumerate(streams.items()) for step, row in enumerate(rows)]
    stream, step, decision, answer = (np.array(column) for column in zip(*rows, strict=True))
    ones, decision = np.ones(len(rows)), decision.astype(bool)
    signals = {"p_need": ones, "p_accept": ones, "threshold": ones, "slow": ~decision, "y_need": ones}
    answer = answer.astype(float)
    return Trace(stream=stream, step=step, decision=decision, y_accept=answer, y_best=answer, **signals)


@pytest.mark.parametrize(
    ("streams", "chosen"),
    [
        ({"silent": [(0, 0)], "offer": [(1, 0)]}, 1),
        ({"offers": [(1, 1)] * 9, "both": [(0, 0), (1, 1)]}, 1),
        ({"unanswered": [(0, np.nan), (1, np.nan)], "answered": [(0, 0), (1, 1)]}, 1),
        ({"wrong": [(0, 1), (1, 0)], "right": [(0, 0), (1, 1)]}, 1),
        ({"first": [(0, 0), (1, 1)], "second": [(0, 0), (1, 1)]}, 0),
        ({"late": [(0, 0)] * 40 + [(1, 1), (0, 0)] * 9, "soon": [(0, 0), (1, 1)]}, 1),
    ],
)
def test_the_stream_shown_has_the_gate_at_work(streams, chosen):
    assert timeline.choose_stream(small_trace(streams)) == f"stream {chosen}"


CLOCK = {0: "0:00", 59.6: "1:00", 3661: "1:01:01", 86399: "23:59:59", 1e6: "11 d 13:46:40", -5: "−0:05", math.nan: ""}


@pytest.mark.parametrize(("seconds", "shown"), CLOCK.items())
def test_the_clock(seconds, shown):
    assert timeline.clock(float(seconds)) == shown


def test_silence_in_the_timeline_costs_what_the_best_offer_would_have_brought():
    scores, others = Scores.from_columns(make_two_passes()[0]), 0
    evaluation = protocol.evaluate(scores, IDENTITY, OperatingPoint(margin=0.2))
    for name in sorted(set(scores.stream)):
        for moment in timeline.timeline(evaluation, name, None).moments:
            rows = (scores.stream == name) & (scores.step == int(moment.number))
            best = max(scores.y_accept[rows])
            if moment.decision == "silent":
                assert moment.cost == f"{2 * scores.y_need[rows][0] * best:g}"
                assert moment.other == (", another offer yes" if best == 1 and moment.y_accept == "no" else "")
                others += bool(moment.other)
    assert others > 0
