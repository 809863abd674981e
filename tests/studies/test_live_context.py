"""Live streams beside evaluation in a context that they outgrow."""

import dataclasses

import jax
import numpy as np
import pytest

from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.streams.edit import map_steps
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.student import Student
from studies.live_context import KEEPS, compare, decide, outgrown, read_live, read_offline

CONTEXT = 90


@pytest.fixture(scope="module")
def student(template):
    sizes = dict(hidden_dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)
    model = Qwen3(StudentConfig(vocab_size=template.tokenizer.size, **sizes, initializer_range=0.5))
    return Student(model, model.init(jax.random.key(1)), template)


@pytest.fixture(scope="module")
def streams(simulated):
    """Streams with every label, which the simulator's log has not."""

    def judge(step):
        offers = tuple(
            dataclasses.replace(offer, y_accept=float((step.event + i) % 3 == 0), logged=None, propensity=None)
            for i, offer in enumerate(step.candidates)
        )
        return dataclasses.replace(step, y_need=float(step.event % 2), candidates=offers)

    return tuple(map_steps(stream, judge) for stream in simulated[:6])


@pytest.fixture(scope="module")
def maps():
    fit = SignalFit(Temperature(1.0), base_rate=0.5, count=9, effective_count=9.0, offer_rate=0.5)
    return Calibration(fit, fit)


@pytest.mark.slow
def test_a_live_stream_that_drops_only_what_must_go_reads_what_evaluation_reads(student, streams):
    assert 0.2 < outgrown(student.template, streams, CONTEXT) < 0.9
    offline, live = read_offline(student, streams, CONTEXT), read_live(student, streams, CONTEXT, 1.0)
    assert offline.keys() == live.keys()
    for key, (need, accept) in offline.items():
        np.testing.assert_allclose([live[key][0], *live[key][1]], [need, *accept], atol=2e-5)
    half = read_live(student, streams, CONTEXT, 0.5)
    moved = [abs(half[key][0] - offline[key][0]) for key in offline]
    assert max(moved) > 1e-3 and min(moved) < 1e-5, "only streams that outgrew the context may differ"


@pytest.mark.slow
def test_the_table_counts_costs_and_changes_by_hand(student, streams, maps):
    point = OperatingPoint(c_fn=3.0)
    found = compare(student, streams, maps, point, CONTEXT)
    names = ["evaluation", *(f"live, keep = {keep:g}" for keep in KEEPS)]
    assert [row.name for row in found.sections[0].rows] == names
    costs, flips = [], {}
    for name, raw in [("evaluation", read_offline(student, streams, CONTEXT))] + [
        (f"live, keep = {keep:g}", read_live(student, streams, CONTEXT, keep)) for keep in KEEPS
    ]:
        offers, cost = [], 0.0
        for stream in streams:
            for number, step in enumerate(stream.steps):
                need, accept = raw[stream.id, number]
                best = max(range(len(accept)), key=accept.__getitem__)
                offers.append(need * accept[best] > 0 and 1 - accept[best] <= accept[best] * need * 3)
                y_accept = step.candidates[best].y_accept
                cost += (1 - y_accept) if offers[-1] else 3 * step.y_need * y_accept
        costs.append(cost / len(offers))
        flips[name] = offers
    for row, cost in zip(found.sections[0].rows, costs, strict=True):
        assert float(row.cells[0].split()[0]) == pytest.approx(cost, abs=6e-4)
        if row.name != "evaluation":
            changed = np.mean(np.array(flips[row.name]) != np.array(flips["evaluation"]))
            assert float(row.cells[2].split()[0]) == pytest.approx(changed, abs=6e-4)


def test_a_step_without_a_label_is_named(student, streams, maps):
    step = dataclasses.replace(streams[0].steps[0], y_need=None)
    bare = dataclasses.replace(streams[0], steps=(step, *streams[0].steps[1:]))
    raw = read_offline(student, [bare], 2048)
    with pytest.raises(ValueError, match=f"stream '{bare.id}', step 0: found no label"):
        decide(raw, [bare], maps, OperatingPoint())
