"""Evaluation by states that merge: the same results as in memory, for every division of the rows."""

import functools

import numpy as np
import pytest
from in_parts import leaves
from synthetic_scores import POINT, SPLITS, in_folds, make_columns, make_two_passes

from prism_jax.decision import calibration as measures
from prism_jax.decision.uncertainty import poisson_weights, unit_keys
from prism_jax.evaluation import policy_rows, protocol
from prism_jax.evaluation.merged import histograms, planning, running, states, sums
from prism_jax.evaluation.merged.scan import Scan
from prism_jax.scores import Scores, ScoresError

STEPS = 960


def with_candidates(seed):
    """A table with three candidates at each step, of which the passes pick different ones."""
    columns, rng = make_two_passes(seed, 40, 8, SPLITS)
    return columns | {"tokens_slow": rng.integers(50, 90, STEPS)}


def out_of_fold(seed, **more):
    return in_folds(make_columns(seed=seed, **more), 4)


def of_acceptance_alone(seed):
    columns = make_columns(seed=seed)
    return {name: column for name, column in columns.items() if "need" not in name and name != "p_both_true"}


def people_in_folds(seed):
    columns = out_of_fold(seed, slow=False)
    person = [f"person {int(name.split('-')[1]) % 20}" for name in columns["stream"]]
    return columns | {"person": person, "fold": [int(name.split()[1]) % 4 for name in person]}


TABLES = {
    "one pass": lambda: make_columns(seed=1, slow=False),
    "slow pass": lambda: make_columns(seed=5) | {"tokens_slow": np.random.default_rng(0).integers(50, 90, STEPS)},
    "slow pass without tokens": lambda: make_columns(seed=6),
    "weights": lambda: make_columns(seed=3, logging=True, slow=False),
    "candidates": lambda: with_candidates(2),
    "out of fold": lambda: out_of_fold(4),
    "people": lambda: people_in_folds(7),
    "acceptance alone": lambda: of_acceptance_alone(8),
    "soft labels": lambda: make_columns(seed=9, slow=False) | {"y_accept": np.random.default_rng(1).random(STEPS)},
}


def parts_of(scores, number, seed=0, shuffled=True):
    """The table in parts with whole steps, some perhaps empty, their rows in any order."""
    step = scores.step_numbers()
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, step.max() + 2, number - 1))
    part = np.searchsorted(at, step, side="right")
    for i in range(number):
        rows = np.flatnonzero(part == i)
        if shuffled:
            rng.shuffle(rows)
        if len(rows):
            yield scores.take(rows)


def in_memory(scores):
    calibration = protocol.calibrate(scores)
    return calibration, protocol.evaluate(scores, calibration, POINT)


@functools.cache
def both_of(name):
    """The calibration and the evaluation of a table in memory, and those of three parts of it."""
    scores = Scores.from_columns(TABLES[name]())
    fitted, assembled = running.evaluate(running.over(parts_of(scores, 3)), POINT)
    return *in_memory(scores), fitted, assembled.evaluation


GRIDS = {name: getattr(histograms, name) for name in ("LOG_ODDS", "LOG_RATIO", "SHARE")}


@pytest.fixture(autouse=True)
def fewer_bins(monkeypatch):
    """Grids of an eighth of the bins, which merge faster."""
    for name, grid in GRIDS.items():
        monkeypatch.setattr(histograms, name, grid._replace(bins=grid.bins >> 3))


@pytest.fixture
def all_bins(fewer_bins, monkeypatch):
    for name, grid in GRIDS.items():
        monkeypatch.setattr(histograms, name, grid)


APPROXIMATE = ("audbc_low", "audbc_high", "miscalibration", "discrimination", "accept_alone", "audbc")
"""Numbers with a bound of their own, or an interval to first order."""


@pytest.mark.filterwarnings("ignore::prism_jax.decision.calibration.CalibrationWarning")
@pytest.mark.parametrize("name", ["slow pass", "weights", "people"])
def test_pieces_of_a_table_give_the_numbers_of_the_whole(name, monkeypatch):
    scores = Scores.from_columns(TABLES[name]())
    _, whole = running.evaluate_rows(scores, POINT)
    monkeypatch.setattr(policy_rows, "PIECE", 150)
    _, pieces = running.evaluate_rows(scores, POINT)
    numbers = dict(leaves(pieces.evaluation.to_dict()))
    for path, value in leaves(whole.evaluation.to_dict()):
        assert numbers[path] == (pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value), path


@pytest.mark.filterwarnings("ignore::prism_jax.decision.calibration.CalibrationWarning")
@pytest.mark.parametrize("name", TABLES)
def test_results_are_those_of_the_table_in_memory(name):
    calibration, expected, fitted, found = both_of(name)
    numbers = dict(leaves(found.to_dict()))
    for path, value in leaves(expected.to_dict()):
        other = numbers.pop(path)
        is_number = isinstance(value, float) and not isinstance(value, bool)
        if any(path.endswith(part) for part in (*APPROXIMATE, "rescaled")) or "second_signal" in path:
            assert (value is None) == (other is None) and (value is None or abs(value - other) < 0.05), path
        elif "triggers" in path:  # a threshold is the edge of a bin and not the middle between two steps
            assert (value is None) == (other is None) or "difference" in path, path
            assert "slow_rate" not in path or abs(value - other) < 0.03, path
            assert "realised_cost" not in path or abs(value - other) < 0.02, path
        else:
            assert other == (pytest.approx(value, rel=1e-6, abs=1e-8) if is_number else value), path
    assert all(".bounds" in path for path in numbers)
    fits = dict(leaves(fitted.to_dict()))
    assert fits.keys() == dict(leaves(calibration.to_dict())).keys()
    for path, value in leaves(calibration.to_dict()):
        assert fits[path] == (pytest.approx(value, rel=1e-6, abs=1e-8) if isinstance(value, float) else value), path


@pytest.mark.parametrize("name", ["one pass", "candidates", "people"])
def test_numbers_from_histograms_are_within_their_bounds(name):
    (calibration, expected, fitted, found), checked = both_of(name), 0
    for mine, theirs in zip(found.ratios.rows, expected.ratios.rows, strict=True):
        if (bound := found.bounds.get(f"ratios.{mine.policy}.{mine.form}.audbc")) is not None:
            assert abs(mine.audbc - theirs.audbc) <= bound + 1e-12
            checked += 1
    for mine, theirs in zip(found.signals, expected.signals, strict=True):
        for number in ("miscalibration", "discrimination"):
            bound = found.bounds[f"signals.{mine.signal}_{mine.thinking}.{mine.form}.{number}"]
            assert abs(getattr(mine, number) - getattr(theirs, number)) <= bound + 1e-12
            checked += 1
    for mine, theirs in zip(found.second_signal, expected.second_signal, strict=True):
        bound = found.bounds[f"second_signal.{mine.ratio:g}.accept_alone"]
        assert abs(mine.accept_alone - theirs.accept_alone) <= bound + 1e-12
    for signal in ("need_fast", "accept_fast"):
        pairs = [(getattr(fitted, signal), getattr(calibration, signal))]
        pairs += [(getattr(fitted.folds[k], signal), getattr(calibration.folds[k], signal)) for k in fitted.folds]
        bound = found.bounds[f"{signal}.temperature"]
        assert bound < 1e-5
        assert all(abs(mine.temperature - theirs.temperature) <= bound + 1e-9 for mine, theirs in pairs)
    assert checked > 8


@pytest.mark.parametrize(
    ("name", "numbers", "exact"),
    [
        ("candidates", (1, 2), False),
        ("people", (1, 2), False),
        *(pytest.param(name, (7,), False, marks=pytest.mark.slow) for name in ("candidates", "people")),
        pytest.param("candidates", (7,), True, marks=pytest.mark.slow),
        ("people", (24,), True),
    ],
)
def test_every_division_gives_the_same_counts(name, numbers, exact, coarse):
    """One person's rows stand in all parts; most parts hold whole streams, some a step or none."""
    scores = Scores.from_columns(TABLES[name]())
    _, one = running.evaluate(running.over([scores]), POINT, exact=exact)
    expected, counts = dict(leaves(one.evaluation.to_dict())), ("tp", "fp", "fn", "offers", "slow")
    for number in numbers:
        _, found = running.evaluate(running.over(parts_of(scores, number, seed=number)), POINT, exact=exact)
        for path, value in leaves(found.evaluation.to_dict()):
            if isinstance(value, int | str | None):
                assert value == expected[path], path
            elif not any(part in path for part in ("bounds", "low", "high")):
                assert value == pytest.approx(expected[path], rel=1e-9, abs=1e-11), path
        for mine, theirs in zip(found.exploration.tables, one.exploration.tables, strict=True):
            assert all(np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in counts)


@pytest.mark.filterwarnings("ignore::prism_jax.decision.calibration.CalibrationWarning")
@pytest.mark.parametrize("calibrator", measures.CALIBRATORS)
def test_every_map_is_fitted_as_in_memory(calibrator, all_bins):
    scores = Scores.from_columns(make_columns(seed=11, slow=False))
    config = measures.CalibrationConfig(calibrator)
    expected = protocol.calibrate(scores, config)
    fitted, assembled = running.evaluate(running.over(parts_of(scores, 2)), POINT, config)
    bounded = [name for name in assembled.evaluation.bounds if ".calibrated." in name or "second_signal" in name]
    smooth = ("temperature", "platt", "penalised")  # of other maps, nobody knows what their own error changes
    assert bool(bounded) == (calibrator in smooth)
    p = np.linspace(0.01, 0.99, 99)
    for signal in ("need_fast", "accept_fast"):
        mine, theirs = (getattr(of, signal) for of in (fitted, expected))
        domains = np.array(["coding", "writing", "life"] * 33)
        calibrated = [measures.apply_map(of.map, p, domains) for of in (mine, theirs)]
        np.testing.assert_allclose(*calibrated, atol=1e-3 if calibrator == "isotonic" else 1e-6)
        assert (mine.count, mine.base_rate) == (theirs.count, pytest.approx(theirs.base_rate))


def test_states_survive_a_file(tmp_path):
    scores = Scores.from_columns(TABLES["people"]())
    kept = {}

    def run(name, statistic):
        state = statistic.init()
        for part in parts_of(scores, 3):
            state = statistic.add(state, part)
        np.savez(tmp_path / f"{name}.npz", **states.encode(state))
        with np.load(tmp_path / f"{name}.npz", allow_pickle=False) as arrays:
            kept[name] = states.decode(dict(arrays))
        mine, theirs = states.encode(kept[name]), states.encode(state)
        assert mine.keys() == theirs.keys()
        for key, array in mine.items():
            assert np.array_equal(array, theirs[key], equal_nan=array.dtype.kind == "f"), key
        return kept[name]

    _, found = running.evaluate(run, POINT)
    assert found.evaluation.deployed == both_of("people")[3].deployed
    assert set(kept) == {"scan", "ranks", "sums"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domain": ["coding"] * (STEPS // 2) + ["life"] * (STEPS // 2)}, None),
        ({"split": ["test"] * STEPS}, "found no row of the split 'calibration'"),
        ({"logged": np.arange(STEPS) % 2 == 0, "y_accept": np.where(np.arange(STEPS) % 2, np.nan, 1.0)}, "propensity"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_as_in_memory(change, message):
    columns = make_columns(slow=False) | change
    scores = Scores.from_columns({name: np.asarray(column) for name, column in columns.items()})
    run = running.over(parts_of(scores, 4))
    if message is None:
        assert running.evaluate(run, POINT)[1].evaluation.groups
        return
    with pytest.raises(ScoresError, match=message):
        running.evaluate(run, POINT)


def test_a_stream_or_person_that_parts_divide_is_found():
    """No part alone can see it."""
    columns = make_columns(slow=False, streams=4)
    scores = Scores.from_columns(columns)
    first, second = scores.take(scores.step < 6), scores.take(scores.step >= 6)
    elsewhere = Scores.from_columns(
        {name: getattr(second, name) for name in second.columns()} | {"domain": np.full(len(second), "other", object)}
    )
    with pytest.raises(ScoresError, match="found 4 streams with more than one domain"):
        planning.check(running.over([first, elsewhere])("scan", Scan(measures.CalibrationConfig())))
    with pytest.raises(planning.OutOfOrderError):
        planning.check(running.over([first, second, first])("scan", Scan(measures.CalibrationConfig())))
    planning.check(running.over([first, second])("scan", Scan(measures.CalibrationConfig())))


def test_a_temperature_has_a_bound_with_probabilities_below_the_precision_of_1():
    columns, place = make_columns(seed=3, slow=False), np.arange(STEPS) % 10 == 0
    tiny = 10.0 ** -np.random.default_rng(0).uniform(17, 300, STEPS)
    columns["p_accept_fast"] = np.where(place, tiny, columns["p_accept_fast"])
    columns["y_accept"] = np.where(place, 0.0, columns["y_accept"])
    scores = Scores.from_columns(columns)
    fitted, found = running.evaluate(running.over(parts_of(scores, 3)), POINT)
    error = abs(fitted.accept_fast.temperature - protocol.calibrate(scores).accept_fast.temperature)
    assert error <= found.evaluation.bounds["accept_fast.temperature"] + 1e-9 < 1e-3


@pytest.mark.parametrize("slow", [False, True])
def test_parts_without_labels_count_as_in_memory(slow):
    """Their steps have no label of need or of acceptance, but decisions, tokens and distances to the truth."""
    columns = make_columns(seed=3, slow=slow, streams=20, steps=6) | {"tokens_slow": np.full(120, 50)}
    later = np.arange(120) >= 60
    columns |= {name: np.where(later, np.nan, columns[name]) for name in ("y_need", "y_accept")}
    scores = Scores.from_columns(columns)
    _, expected = in_memory(scores)
    found = running.evaluate(running.over([scores.take(~later), scores.take(later)]), POINT)[1].evaluation
    assert found.counts == expected.counts
    for mine, theirs in zip(found.policies, expected.policies, strict=True):
        assert (mine.speak_rate, mine.expected_cost) == pytest.approx((theirs.speak_rate, theirs.expected_cost))
    for mine, theirs in zip(found.signals, expected.signals, strict=True):
        numbers = [(row.count, row.nll, row.distance, row.constant_distance) for row in (mine, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)


def test_shown_steps_have_all_their_candidates(monkeypatch):
    monkeypatch.setattr(sums, "MOST_SHOWN", 50)
    scores = Scores.from_columns(with_candidates(2))
    shuffled = scores.take(np.random.default_rng(0).permutation(len(scores)))
    trace = running.evaluate(running.over([shuffled]), POINT)[1].evaluation.trace
    assert len(trace.step) == 16
    for stream, step, best in zip(trace.stream, trace.step, trace.y_best, strict=True):
        assert best == scores.y_accept[(scores.stream == stream) & (scores.step == step)].max()


def test_areas_are_computed_where_no_label_of_the_slow_pass_is_known(all_bins):
    columns = {name: np.repeat(np.asarray(values), 2) for name, values in make_columns(streams=20, steps=4).items()}
    candidate = np.tile([0, 1], 80)
    for name, chosen in (("p_accept_fast", 0), ("p_accept_slow", 1)):
        columns[name] = np.where(candidate == chosen, 0.5 + columns[name] / 2, columns[name] / 2)
    known = (candidate == 0) | (columns["split"] == "calibration")
    columns |= {"candidate": candidate, "y_accept": np.where(known, columns["y_accept"], np.nan)}
    scores = Scores.from_columns(columns)
    _, expected = in_memory(scores)
    _, found = running.evaluate(running.over(parts_of(scores, 3)), POINT)
    assert found.evaluation.switched_off == expected.switched_off
    for mine, theirs in zip(found.evaluation.ratios.rows[3:], expected.ratios.rows[3:], strict=True):
        bound = found.evaluation.bounds[f"ratios.{mine.policy}.{mine.form}.audbc"]
        assert abs(mine.audbc - theirs.audbc) <= bound + 1e-12 < 0.01


@pytest.mark.parametrize("calibrator", measures.CALIBRATORS)
def test_a_table_without_labels_has_no_map(calibrator):
    scores = Scores.from_columns(make_columns(slow=False, streams=8) | {"y_need": np.full(96, np.nan)})
    with pytest.raises(ScoresError, match="found no label on the calibration split"):
        running.evaluate(running.over(parts_of(scores, 2)), POINT, measures.CalibrationConfig(calibrator))


def test_groups_of_all_parts_together_are_limited(monkeypatch):
    monkeypatch.setattr(planning, "MOST_VALUES", 5)
    columns = make_columns(slow=False, streams=12)
    columns["persona"] = columns["stream"]
    scores = Scores.from_columns(columns)
    with pytest.raises(ScoresError, match="domain, persona: found 6 different values, expected at most 5"):
        running.evaluate(running.over(parts_of(scores, 4)), POINT)
    assert running.evaluate(running.over(parts_of(scores, 4)), POINT, exact=True)[1].evaluation.groups


@pytest.mark.parametrize("most", [100, 20, 5])
def test_what_parts_merge_to_is_what_the_whole_is(most):
    """Sums of units, kept by name, by key, or of a few by name beside many by key; and the first rows."""
    columns, names = np.random.default_rng(0).random((60, 2)), [f"unit {i:02d}" for i in range(60)]

    def of(first, last):
        some = dict(zip("ab", columns[first:last].T, strict=True))
        return states.UnitSums.of(names[first:last], some, resamples=50, seed=1, most=most)

    def total(state):
        return state.sums.sum(axis=0) if state.keys is None else state.totals

    def rows(first, last):
        return states.Beginning({"row": np.arange(first, last)}, most)

    whole, found = of(0, 60), of(0, 8).merge(of(8, 50)).merge(of(50, 60))
    twice = found.merge(of(8, 50))  # units that stand in both
    assert found.number == twice.number == 60 and (found.keys is None) == (most == 100)
    np.testing.assert_allclose(total(found), total(whole), rtol=1e-12)
    np.testing.assert_allclose(total(twice), total(whole) + columns[8:50].sum(axis=0), rtol=1e-12)
    if most < 100:
        np.testing.assert_allclose(found.replicates, whole.replicates, rtol=1e-12)
    parts = [rows(*ends) for ends in ((0, 0), (0, 3), (3, 3), (3, 60), (60, 61))]
    assert functools.reduce(states.Beginning.merge, parts).columns["row"].tolist() == list(range(61))[:most]


def test_resamples_of_keys_are_poisson_and_independent():
    keys = unit_keys(f"stream {i}" for i in range(2000))
    weights = poisson_weights(keys, 400, seed=3).astype(float)
    assert weights.mean() == pytest.approx(1, abs=0.01) and weights.var() == pytest.approx(1, abs=0.02)
    share = np.bincount(weights.astype(int).ravel(), minlength=9)[:5] / weights.size
    np.testing.assert_allclose(share, np.exp(-1) / np.array([1, 1, 2, 6, 24]), atol=0.002)
    between = np.corrcoef(weights[:200])  # of units, over resamples
    assert abs(between[np.triu_indices(200, 1)]).mean() < 0.05
    assert abs(np.corrcoef(weights.T[:50])[np.triu_indices(50, 1)]).max() < 0.11
    assert not np.array_equal(weights, poisson_weights(keys, 400, seed=4))
    np.testing.assert_array_equal(weights[:, 100:110], poisson_weights(keys, 10, seed=3, start=100))


def test_intervals_of_many_units_are_those_of_the_bootstrap(monkeypatch):
    """Resamples by key, merged part by part, beside the draws of all units together."""
    scores = Scores.from_columns(make_columns(seed=2, streams=1000, steps=2, slow=False))
    _, expected = in_memory(scores)
    monkeypatch.setattr(states, "MOST_KEPT", 300)
    _, found = running.evaluate(running.over(parts_of(scores, 6)), POINT)
    for mine, theirs in zip(found.evaluation.policies, expected.policies, strict=True):
        assert mine.realised_cost == pytest.approx(theirs.realised_cost, rel=1e-6)
        if mine.policy == "clairvoyant":  # its cost is 0 by construction
            continue
        width = theirs.realised_high - theirs.realised_low
        assert mine.realised_low == pytest.approx(theirs.realised_low, abs=0.2 * width)
        assert mine.realised_high == pytest.approx(theirs.realised_high, abs=0.2 * width)
    assert found.evaluation.units == expected.units == 500


@pytest.mark.parametrize("some", [False, True])
def test_need_given_acceptance_is_read_beside_the_offers_of_all_rows(some):
    """By the slow pass's own offers where every row, of all parts, has its signals, else by the fast pass's."""
    columns = with_candidates(1) | {"need_target": ["given_accept"] * STEPS}
    missing = some & (np.arange(STEPS) // 3 > 250)  # of whole steps, in the last of the parts alone
    columns |= {name: np.where(missing, np.nan, columns[name]) for name in ("p_need_slow", "p_accept_slow")}
    scores = Scores.from_columns(columns)
    fitted, found = running.evaluate(running.over(parts_of(scores, 3)), POINT, exact=True)
    rows = scores.take(scores.split == "calibration")
    assert np.isnan(rows.p_accept_slow).any() == some
    offers = rows.steps("fast" if some else "slow")
    known = (offers.y_accept == 1) & ~np.isnan(offers.p_need_slow)
    assert fitted.need_slow.count == known.sum() != fitted.need_fast.count
    assert fitted.need_slow.base_rate == pytest.approx(offers.y_need[known].mean(), rel=1e-12)
    assert (len(found.evaluation.signals) == 8) and found.evaluation.need_given_accept
