import dataclasses

import numpy as np
import pytest

from prism_jax.scores import Scores
from prism_jax.streams import Candidate
from prism_jax.streams.edit import map_candidates
from prism_jax.student.prompting.packing import decisions, pack
from prism_jax.student.scoring.fast import score_streams
from prism_jax.student.scoring.student import Student


@pytest.fixture(scope="module")
def params(model, draw_params):
    return draw_params(model)


def rows_of(model, params, template, streams, batch=4, context=2048):
    student = Student(model, params, template)
    return list(score_streams(student, streams, split="test", fold=2, context=context, batch=batch))


def test_every_candidate_is_one_row_of_a_valid_table(model, params, template, simulated):
    streams = [
        dataclasses.replace(
            stream,
            steps=tuple(
                dataclasses.replace(
                    step, candidates=(Candidate(text="Tea?"), Candidate(text="Or coffee?", y_accept=1.0))
                )
                if number % 2
                else step
                for number, step in enumerate(stream.steps)
            ),
        )
        for stream in simulated[:5]
    ]
    rows = rows_of(model, params, template, streams)
    assert [(row["stream"], row["step"], row["candidate"]) for row in rows] == [
        (stream.id, number, index)
        for stream in streams
        for number, step in enumerate(stream.steps)
        for index in range(len(step.candidates))
    ]
    scores = Scores.from_rows(rows)  # checks ranges, and that p_need is constant within a step
    assert len(set(scores.p_need_fast)) == len(scores.steps())
    assert len(set(scores.p_accept_fast)) == len(scores)
    by_id = {stream.id: stream for stream in streams}
    for row in rows:
        stream = by_id[row["stream"]]
        step = stream.steps[row["step"]]
        assert row["time"] == stream.events[step.event].time
        assert row["y_need"] == step.y_need
        assert row["y_accept"] == step.candidates[row["candidate"]].y_accept
        assert (row["split"], row["fold"]) == ("test", 2)


def test_scores_depend_neither_on_the_batch_size_nor_on_other_streams(model, params, template, simulated):
    streams = simulated[:5]
    together = rows_of(model, params, template, streams, batch=5)
    by_twos = rows_of(model, params, template, streams, batch=2)
    alone = rows_of(model, params, template, streams[3:4], batch=1)
    for name in ("p_need_fast", "p_accept_fast"):
        whole = np.array([row[name] for row in together])
        np.testing.assert_allclose([row[name] for row in by_twos], whole, atol=1e-5)
        of_one = [row[name] for row in together if row["stream"] == streams[3].id]
        np.testing.assert_allclose([row[name] for row in alone], of_one, atol=1e-5)


def test_tokens_count_a_read_of_the_decision_without_a_cache(model, params, template, simulated):
    stream = next(stream for stream in simulated if any(step.candidates[0].response for step in stream.steps))
    rows = rows_of(model, params, template, [stream])
    for row, alone in zip(rows, decisions(stream), strict=True):
        silent = dataclasses.replace(alone, steps=(dataclasses.replace(alone.steps[0], candidates=(Candidate(),)),))
        packed = pack(silent, template, 2048)
        assert row["tokens_fast"] == len(packed.trunk) + len(packed.tokens)


def test_a_recorded_response_changes_no_score(model, params, template, simulated):
    stream = next(stream for stream in simulated if any(step.candidates[0].response for step in stream.steps))
    bare = map_candidates(stream, lambda offer: dataclasses.replace(offer, response=None))
    assert rows_of(model, params, template, [stream]) == rows_of(model, params, template, [bare])


@pytest.mark.slow
def test_decisions_of_a_long_stream_are_read_with_the_newest_events_that_fit(model, params, template, simulated):
    """The scores equal those of the decision alone, in a stream that begins with the oldest event that is kept."""
    longest = max(simulated, key=lambda stream: len(stream.events))
    # All events have the same time, so that the first one kept shows no time since the event before it.
    stream = dataclasses.replace(
        longest, events=tuple(dataclasses.replace(event, time=0.0) for event in longest.events)
    )
    whole = rows_of(model, params, template, [stream])
    context = whole[-1]["tokens_fast"] - 1
    found = rows_of(model, params, template, [stream, simulated[0]], batch=2, context=context)
    mine = [row for row in found if row["stream"] == stream.id]
    assert [(row["step"], row["time"], row["y_need"]) for row in mine] == [
        (row["step"], row["time"], row["y_need"]) for row in whole
    ]
    fits = [row["tokens_fast"] <= context for row in whole]
    assert not fits[-1] and fits[0]
    for row, before, same in zip(mine, whole, fits, strict=True):
        assert (row["tokens_fast"] == before["tokens_fast"]) == same and row["tokens_fast"] <= context
        assert (row["p_need_fast"] == pytest.approx(before["p_need_fast"], abs=1e-6)) == same
    last = stream.steps[-1]
    step = map_candidates(last, lambda offer: dataclasses.replace(offer, response=None))
    cuts = [
        dataclasses.replace(
            stream, events=stream.events[first:], steps=(dataclasses.replace(step, event=last.event - first),)
        )
        for first in range(last.event + 1)
    ]
    cut = next(cut for cut in cuts if int(pack(cut, template, 2048).positions.max()) < context)
    (alone,) = rows_of(model, params, template, [cut], batch=1)
    for name in ("p_need_fast", "p_accept_fast", "tokens_fast"):
        assert mine[-1][name] == pytest.approx(alone[name], abs=1e-5)
