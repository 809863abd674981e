"""What scoring and calibration would refuse after training is refused before the first step, and claims no folder."""

import dataclasses

import pytest
import tiny

from prism_jax.runs.pipeline import check_evaluable, has_labels, train_and_evaluate
from prism_jax.streams import Stream
from prism_jax.streams.edit import map_candidates, map_steps, without_answers
from prism_jax.training import run as runs
from prism_jax.training.workdir import Workdir


def with_split(monkeypatch, name, change):
    """Makes loading change the streams of one split."""
    load = runs.load_splits

    def changed(*arguments):
        splits = load(*arguments)
        return dataclasses.replace(splits, **{name: tuple(map(change, getattr(splits, name)))})

    monkeypatch.setattr(runs, "load_splits", changed)


def longer(stream: Stream) -> Stream:
    event = dataclasses.replace(stream.events[-1], text=stream.events[-1].text + " again and again" * 400)
    return dataclasses.replace(stream, events=(*stream.events[:-1], event))


def needed(stream: Stream) -> Stream:
    return map_steps(stream, lambda step: dataclasses.replace(step, y_need=1.0))


def rejected(stream: Stream) -> Stream:
    def reject(offer):
        return offer if offer.y_accept is None else dataclasses.replace(offer, y_accept=0.0)

    return map_candidates(stream, reject)


def unjudged(stream: Stream) -> Stream:
    return map_steps(stream, lambda step: dataclasses.replace(step, y_need=None))


CASES = {
    "a long test stream": ("test", longer, r"^split 'test': stream 'sim-0-13700', steps\[\d\]: found \d+ tokens"),
    "a long calibration stream": ("calibration", longer, r"^split 'calibration': stream 'sim-0-13200', steps\[\d\]"),
    "need everywhere": ("calibration", needed, r"^data: y_need: split 'calibration': found only 1 among \d+ labels"),
    "acceptance nowhere": ("calibration", rejected, r"^data: y_accept: split 'calibration': found only 0 among \d+"),
    "nothing judged": ("test", unjudged, r"^data: split 'test': found no step with both y_need and y_accept among"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_before_the_first_step(case, monkeypatch, tmp_path):
    split, change, message = CASES[case]
    with_split(monkeypatch, split, change)
    with pytest.raises(ValueError, match=message):
        train_and_evaluate(tiny.CONFIG, Workdir(tmp_path / "run"), report=False)
    assert not (tmp_path / "run").exists()


def test_streams_without_any_label_are_no_error(monkeypatch, tmp_path):
    """What they say is labelled after training; one label anywhere, and both splits are checked as before."""
    for name in ("calibration", "test"):
        with_split(monkeypatch, name, without_answers)
    run = runs.resolve(tiny.CONFIG)
    check_evaluable(run)
    assert not has_labels(run)
    with_split(monkeypatch, "test", needed)
    with pytest.raises(ValueError, match=r"^data: y_need: split 'calibration': found no label, expected both classes"):
        check_evaluable(runs.resolve(tiny.CONFIG))
