"""The supervision of pathways: teachers, curation and slow branches; and the statistics of the interaction log."""

import dataclasses
import re

import numpy as np
import pytest
import tiny
from pathway_streams import STREAMS, TEMPLATE, config, each_candidate, each_step, supervised

from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.pathways.logged import mean_a_over_e, out_of_fold_acceptance
from prism_jax.training.pathways.supervision import supervise

LOG = [simulate(SimulatorConfig(), index) for index in range(200)]


def branches(streams):
    return {(stream.id, step.event): step.slow for stream in streams for step in stream.steps}


def test_every_step_has_one_branch_and_the_slow_share_are_slow():
    log = LOG[:80]
    found = supervised(log, slow=0.3).streams
    slow = branches(found)
    assert slow.keys() == {(stream.id, step.event) for stream in log for step in stream.steps}
    assert abs(np.mean(list(slow.values())) - 0.3) < 4 * np.sqrt(0.21 / len(slow))
    assert branches(supervised(log, slow=0.3).streams) == slow
    # The choice does not depend on the other streams or on their order.
    part = branches(supervised(log[::-2], slow=0.3).streams)
    assert part == {place: slow[place] for place in part}
    other = dataclasses.replace(config(slow=0.3), training=dataclasses.replace(tiny.CONFIG.training, seed=1))
    assert branches(supervise(log, other, TEMPLATE).streams) != slow


def test_a_step_without_a_rationale_stays_fast():
    bare = each_step(STREAMS, lambda step: dataclasses.replace(step, rationale=None))
    assert not any(branches(supervised(bare, slow=1.0).streams).values())
    assert all(branches(supervised(STREAMS, slow=1.0).streams).values())


@pytest.mark.parametrize("pathway", [{"name": "rdc_sft"}, {"name": "schema_sft"}, {"alpha": 0.5}])
def test_the_error_for_a_missing_teacher_names_the_step(pathway):
    with pytest.raises(ValueError) as error:
        supervised(LOG, **pathway)
    name = pathway.get("name", "joint")
    assert str(error.value) == (
        "stream 'sim-0-0', steps[0].teacher_need: found null, expected the teacher's probability: pathway "
        f"{name} needs it (the simulator provides it with simulator.teacher = True)"
    )


def test_the_report_counts_every_row_by_stratum_and_domain():
    found = supervised(name="rdc_sft", keep=0.5)
    strata = {name: fact for name, fact in found.facts.items() if name.startswith("  ")}
    counts = [tuple(map(int, pair)) for fact in strata.values() for pair in re.findall(r"(\d+) of (\d+)", fact)]
    rows = sum(len(stream.steps) for stream in STREAMS)
    left = sum(len(stream.steps) for stream in found.streams)
    assert np.sum(counts, axis=0).tolist() == [left, rows]
    assert found.facts["kept"] == f"{left} of {rows} rows"
    pairs = {f"  need {n}, accept {a}" for n in (0, 1) for a in (0, 1)}
    assert set(strata) <= {"  not offered", *pairs}
    made = sum(step.candidates[0].logged for stream in STREAMS for step in stream.steps)
    assert sum(int(n) for n in re.findall(r"of (\d+)", strata["  not offered"])) == rows - made


def test_rows_without_a_need_label_are_dropped_and_counted():
    (first,) = each_step(STREAMS[:1], lambda step: dataclasses.replace(step, y_need=None))
    found = supervised((first, *STREAMS[1:]), name="rdc_sft", keep=1.0)
    assert [stream.id for stream in found.streams] == [stream.id for stream in STREAMS[1:]]
    assert found.facts["  need not judged"] == f"0 of {len(first.steps)}"


@pytest.mark.parametrize(
    ("filtered", "losses", "expected"),
    [("off", "plain", ("sft", {})), ("on", "decision", ("rdc_sft", {})), ("off", "decision", ("joint", {}))],
)
def test_filter_and_losses_are_switched_independently(filtered, losses, expected):
    """Three of the four combinations equal a named pathway; the fourth, curated with plain losses, has no name."""
    name, more = expected
    for start in ("joint", "sft", "rdc_sft"):
        found = PathwayConfig(name=start, filter=filtered, losses=losses)
        assert found.resolved == PathwayConfig(name=name, **more).resolved
    fourth = supervised(name="rdc_sft", losses="plain")
    assert fourth.loss == supervised(name="sft").loss
    assert [len(s.steps) for s in fourth.streams] == [len(s.steps) for s in supervised(name="rdc_sft").streams]


def test_the_check_of_the_propensities_accepts_a_correct_log():
    found = mean_a_over_e(LOG)
    assert found.plausible
    assert abs(found.mean - 1) < 0.1
    rows = [(c.logged, c.propensity) for s in LOG for step in s.steps for c in step.candidates]
    inverse = np.array([logged / e for logged, e in rows])
    assert found.mean == pytest.approx(inverse.mean())
    assert found.high - found.low == pytest.approx(2 * 1.959964 * inverse.std() / np.sqrt(len(inverse)), rel=1e-4)
    assert found.offers == len(rows)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_propensities_that_are_wrong_by_a_factor_of_two_are_detected(factor):
    """Only offers with a propensity below one half are used, so that doubling it still gives a probability."""
    rare = [
        dataclasses.replace(stream, steps=tuple(t for t in stream.steps if t.candidates[0].propensity < 0.5))
        for stream in LOG
    ]
    assert mean_a_over_e(rare).plausible
    found = mean_a_over_e(each_candidate(rare, lambda c: dataclasses.replace(c, propensity=c.propensity * factor)))
    assert not found.plausible
    assert found.mean == pytest.approx(1 / factor, rel=0.15)
    assert "the recorded propensities do not fit the log" in str(found)


def test_a_log_without_propensities_is_not_checked():
    bare = each_candidate(STREAMS, lambda c: dataclasses.replace(c, propensity=None))
    assert mean_a_over_e(bare) is None


def test_a_prediction_never_sees_the_labels_of_its_own_fold():
    def flip(candidate):
        seen = candidate.y_accept
        return dataclasses.replace(candidate, y_accept=None if seen is None else 1 - seen)

    before = out_of_fold_acceptance(LOG, 0.05, 20.0)
    changed = list(LOG)
    for i in range(0, len(LOG), 5):
        changed[i] = each_candidate([LOG[i]], flip)[0]
    after = out_of_fold_acceptance(changed, 0.05, 20.0)
    np.testing.assert_array_equal(after[::5], before[::5])
    assert (np.delete(after, range(0, len(LOG), 5)) != np.delete(before, range(0, len(LOG), 5))).all()
    assert out_of_fold_acceptance(LOG[:1], 0.05, 20.0).tolist() == [0.5]


def test_the_report_warns_that_curation_makes_the_training_labels_more_certain():
    """The teacher's squared error, counted by hand over the steps (one offer each) before and after curation."""
    found = supervised(name="rdc_sft", keep=0.5)

    def error(streams):
        steps = [step for stream in streams for step in stream.steps]
        return np.mean([(step.teacher_need - step.y_need) ** 2 for step in steps])

    before, after = error(STREAMS), error(found.streams)
    assert after < before
    assert found.facts["curation"].startswith("WARNING: curation keeps labels that the teacher predicted")
    assert f"from {before:.3f} to {after:.3f} for need" in found.facts["curation"]
    assert "The calibration streams are not curated" in found.facts["curation"]
    assert "curation" not in supervised(name="sft").facts
