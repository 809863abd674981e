"""Logs with several candidates: where the slow pass runs, it ranks a step's candidates itself."""

import itertools

import numpy as np
import pytest
from synthetic_scores import make_columns

from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.scores import Scores, ScoresError

FIT = SignalFit(Temperature(1.0), base_rate=0.5, count=1, effective_count=1.0, offer_rate=0.5)
IDENTITY = Calibration(FIT, FIT, FIT, FIT)
CANDIDATES = 3


def make_two_passes(seed=0, streams=40, steps=10):
    """Columns with three candidates per step: need is of the step, everything else of the candidate."""
    rng = np.random.default_rng(seed)
    columns = make_columns(seed, streams, steps * CANDIDATES, splits=("test",))
    first = np.arange(streams * steps * CANDIDATES) // CANDIDATES * CANDIDATES
    for name in ("p_need_fast", "p_need_slow", "p_need_true", "y_need"):
        columns[name] = np.asarray(columns[name])[first]
    number = np.arange(streams * steps * CANDIDATES)
    columns["step"] = number // CANDIDATES % steps
    columns["candidate"] = number % CANDIDATES
    columns["time"] = columns["step"] * 30.0
    columns["p_both_true"] = columns["p_need_true"] * columns["p_accept_true"]
    for name in ("p_accept_fast", "p_accept_slow"):  # ties, which go to the lowest number
        columns[name] = np.round(columns[name] * 20) / 20 * 0.98 + 0.01
    return columns, rng


def table_by_hand(scores):
    """The rows of each step, by (stream, step), in ascending order of candidates."""
    table = {}
    for i in range(len(scores)):
        table.setdefault((scores.stream[i], int(scores.step[i])), []).append(i)
    return table


def silence_by_hand(scores, rows, column="labels"):
    """What silence misses at one step: the largest label, or true probability, of need and acceptance together."""
    if column == "truth":
        return max(scores.p_both_true[i] for i in rows)
    labels = [scores.y_need[i] * scores.y_accept[i] for i in rows]
    return max((label for label in labels if not np.isnan(label)), default=np.nan)


def decide_by_hand(scores, rows, policy, point):
    """One step: the row decided about, the offer, and whether the slow pass ran."""
    fast = max(rows, key=lambda i: scores.p_accept_fast[i])
    slow = max(rows, key=lambda i: scores.p_accept_slow[i])
    need, accept = scores.p_need_fast[fast], scores.p_accept_fast[fast]

    def tau(p_need):
        return point.c_fa / (point.c_fa + point.c_fn * p_need)

    distance = abs(accept - tau(need))
    if policy == "slow_only" or (policy == "slow_on_margin" and point.margin > 0 and distance <= point.margin):
        return slow, scores.p_accept_slow[slow] >= tau(scores.p_need_slow[slow]), True
    if policy == "bayes":  # about the fast pass's candidate; what silence misses does not depend on it
        missed = silence_by_hand(scores, rows, "truth")
        return fast, point.c_fa * (1 - scores.p_accept_true[fast]) <= point.c_fn * missed, False
    if policy == "clairvoyant":  # chooses the candidate by its label, too
        best = max((i for i in rows if not np.isnan(scores.y_accept[i])), key=lambda i: scores.y_accept[i])
        missed = silence_by_hand(scores, rows)
        return best, point.c_fa * (1 - scores.y_accept[best]) <= point.c_fn * missed and missed > 0, False
    offers = {
        "always": True,
        "never": False,
        "static": accept >= tau(1.0),
        "product": accept * need >= tau(1.0),
        "fixed": accept >= point.fixed_threshold,
    }
    return fast, offers.get(policy, accept >= tau(need)), False


BY_HAND = ("always", "never", "bayes", "clairvoyant", "fixed", "static", "product", "dynamic")
WITH_SLOW = (*BY_HAND, "slow_only", "slow_on_margin")


def costs_by_hand(scores, policy, point):
    """Realised, gold and expected cost, cells, shares of offers and slow steps, and the costs step by step."""
    steps, cells = [], dict.fromkeys(("tp", "fp", "fn", "tn"), 0.0)
    for rows in table_by_hand(scores).values():
        i, offer, slow = decide_by_hand(scores, rows, policy, point)
        gold, missed = scores.y_need[i] * scores.y_accept[i], silence_by_hand(scores, rows)
        cells["tp" if offer else "fn"] += gold if offer else missed
        cells["fp" if offer else "tn"] += 1 - gold if offer else 1 - missed
        realised = point.c_fa * (1 - scores.y_accept[i]) if offer else point.c_fn * missed
        gold_cost = point.c_fa * (1 - gold) if offer else point.c_fn * missed
        silence = point.c_fn * silence_by_hand(scores, rows, "truth")
        expected = point.c_fa * (1 - scores.p_accept_true[i]) if offer else silence
        steps.append((realised, gold_cost, expected, offer, slow))
    return np.mean(steps, axis=0), cells, np.array(steps)


def row_of(evaluation, policy):
    """The row of a policy, on raw signals where it has any."""
    return next(row for row in evaluation.policies if row.policy == policy and row.form in (None, "raw"))


@pytest.mark.parametrize("margin", [0.05, 0.2])
@pytest.mark.parametrize(("seed", "soft"), [(0, False), (1, False), (2, True)])
def test_each_policy_counts_its_own_offers_and_all_count_one_silence(seed, soft, margin):
    columns, rng = make_two_passes(seed)
    if soft:
        columns["y_accept"] = rng.random(1200)
        columns["y_need"] = np.repeat(rng.random(400), CANDIDATES)
    scores, point = Scores.from_columns(columns), OperatingPoint(margin=margin)
    assert (scores.steps().candidate != scores.steps("slow").candidate).sum() > 20
    evaluation = protocol.evaluate(scores, IDENTITY, point)
    assert evaluation.counts.judged == evaluation.counts.steps == 400
    missed = [silence_by_hand(scores, rows) for rows in table_by_hand(scores).values()]
    assert evaluation.counts.positive == pytest.approx(np.mean(missed))
    bayes = costs_by_hand(scores, "bayes", point)[0][2]
    for policy in WITH_SLOW:
        row = row_of(evaluation, policy)
        (realised, gold, expected, speaks, thinks), cells, _ = costs_by_hand(scores, policy, point)
        assert row.realised_cost == pytest.approx(realised, rel=1e-12, abs=1e-12), policy
        assert row.gold_cost == pytest.approx(gold, rel=1e-12, abs=1e-12), policy
        if policy != "clairvoyant":
            assert row.expected_cost == pytest.approx(expected, rel=1e-12), policy
            assert row.regret == pytest.approx(expected - bayes, rel=1e-9, abs=1e-12), policy
            assert row.slow_rate == pytest.approx(thinks)
        assert row.speak_rate == pytest.approx(speaks), policy
        assert {name: getattr(row, name) for name in cells} == pytest.approx(cells), policy
        if policy == "clairvoyant" and realised == 0:  # whatever the labels are
            assert row.realised_low is None and row.realised_high is None
        else:
            assert row.realised_low <= row.realised_cost <= row.realised_high
    assert row_of(evaluation, "never").realised_cost == pytest.approx(point.c_fn * np.mean(missed))
    clairvoyant = row_of(evaluation, "clairvoyant").realised_cost
    assert all(clairvoyant <= row.realised_cost for row in evaluation.policies)


@pytest.mark.parametrize("seed", [0, 1])
def test_only_labelled_candidates_are_part_of_what_silence_misses(seed):
    """A step counts where its need and the answers to both passes' offers are known, whatever else is unlabelled."""
    columns, rng = make_two_passes(seed)
    columns["y_accept"] = np.where(rng.random(1200) < 0.3, np.nan, columns["y_accept"])
    columns["y_need"] = np.where(np.repeat(rng.random(400) < 0.1, CANDIDATES), np.nan, columns["y_need"])
    scores, point = Scores.from_columns(columns), OperatingPoint(margin=0.2)
    judged = []
    for rows in table_by_hand(scores).values():
        picks = [max(rows, key=lambda i, p=p: p[i]) for p in (scores.p_accept_fast, scores.p_accept_slow)]
        judged += [rows] if not np.isnan(scores.y_need[rows[0]] + sum(scores.y_accept[i] for i in picks)) else []
    partly = sum(bool(np.isnan(scores.y_accept[rows]).any()) for rows in judged)
    assert 20 < partly < len(judged) < 400
    known = scores.take(np.concatenate(judged))
    evaluation = protocol.evaluate(scores, IDENTITY, point)
    for policy in WITH_SLOW:
        (realised, gold, *_), cells, _ = costs_by_hand(known, policy, point)
        row = row_of(evaluation, policy)
        assert (row.realised_cost, row.gold_cost) == pytest.approx((realised, gold), rel=1e-12, abs=1e-12), policy
        assert {name: getattr(row, name) for name in cells} == pytest.approx(cells), policy


def test_a_log_with_propensities_charges_silence_for_the_labelled_offers_by_weight():
    columns, rng = make_two_passes()
    columns["propensity"] = rng.choice([0.3, 0.9], 1200)
    columns["logged"] = rng.random(1200) < columns["propensity"]
    columns["y_accept"] = np.where(columns["logged"], columns["y_accept"], np.nan)
    scores, point = Scores.from_columns(columns), OperatingPoint()
    evaluation = protocol.evaluate(scores, IDENTITY, point)
    total = dict.fromkeys(BY_HAND, 0.0)
    mass = 0.0
    for rows in table_by_hand(scores).values():
        fast = max(rows, key=lambda i: scores.p_accept_fast[i])
        if not scores.logged[fast]:
            continue
        weight = 1 / scores.propensity[fast]
        mass += weight
        for policy in BY_HAND:
            i, offer, _ = decide_by_hand(scores, rows, policy, point)
            missed = point.c_fn * silence_by_hand(scores, rows)
            total[policy] += weight * (point.c_fa * (1 - scores.y_accept[i]) if offer else missed)
    for policy in BY_HAND:
        expected = pytest.approx(total[policy] / mass, rel=1e-12, abs=1e-12)
        assert row_of(evaluation, policy).realised_cost == expected, policy


def bad_slow_pass():
    """A slow pass that always picks an offer that helps nobody and never makes it; the fast pass picks well."""
    columns, rng = make_two_passes(5)
    y = np.zeros((400, CANDIDATES))
    y[:, 0] = rng.random(400) < 0.4
    columns["y_accept"], columns["y_need"] = y.ravel(), np.ones(1200)
    p = np.where(np.arange(1200) % CANDIDATES == 0, 0.3, 0.1)
    columns["p_accept_fast"] = np.where(rng.random(1200) < 0.25, 0.5, 1.0) * p
    columns["p_accept_slow"] = np.where(np.arange(1200) % CANDIDATES == 1, 0.05, 0.02)
    for name in ("p_need_fast", "p_need_slow"):
        columns[name] = np.full(1200, 0.9)
    return Scores.from_columns(columns)


def test_a_slow_pass_that_ranks_badly_and_never_helps_is_not_cheaper_than_silence():
    scores = bad_slow_pass()
    evaluation = protocol.evaluate(scores, IDENTITY, OperatingPoint(margin=0.1))
    gate, slow, never = (row_of(evaluation, name) for name in ("dynamic", "slow_only", "never"))
    assert slow.speak_rate == gate.speak_rate == 0
    assert slow.realised_cost == gate.realised_cost == never.realised_cost
    assert never.realised_cost == pytest.approx(2 * 0.4, abs=0.1)
    assert slow.fn == gate.fn == never.fn > 100
    across = {row.policy: row for row in evaluation.ratios.rows if row.form in (None, "raw")}
    assert across["slow_only"].mean_cost == pytest.approx(across["never"].mean_cost, rel=1e-12)
    assert across["slow_only"].audbc < across["dynamic"].audbc


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_mean_cost_over_ratios_follows_the_candidate(seed):
    scores, point = Scores.from_columns(make_two_passes(seed, streams=12)[0]), OperatingPoint(margin=0.2)
    across = protocol.evaluate(scores, IDENTITY, point).ratios
    ratios = np.geomspace(across.low_ratio, across.high_ratio, 201)
    for policy in ("always", "never", "clairvoyant", "static", "product", "dynamic", "slow_only", "slow_on_margin"):
        costs = []
        for ratio in ratios:
            one = OperatingPoint(c_fa=1.0, c_fn=ratio, margin=point.margin)
            costs.append(costs_by_hand(scores, policy, one)[0][0] / (1 + ratio))
        mean = np.mean((np.array(costs)[1:] + np.array(costs)[:-1]) / 2)  # log-uniform ratios
        row = next(row for row in across.rows if row.policy == policy and row.form in (None, "raw"))
        assert row.mean_cost == pytest.approx(mean, abs=5e-4), policy
        if row.audbc is not None:
            assert row.audbc_low < row.audbc < row.audbc_high


@pytest.mark.parametrize("seed", [0, 1])
def test_all_areas_are_divided_by_that_of_the_best_candidates(seed):
    scores, point = Scores.from_columns(make_two_passes(seed)[0]), OperatingPoint(margin=0.2)
    across = protocol.evaluate(scores, IDENTITY, point).ratios
    table = table_by_hand(scores)
    pi = np.mean([silence_by_hand(scores, rows) for rows in table.values()])
    for policy in ("dynamic", "static"):
        ranked = []
        for rows in table.values():
            i = max(rows, key=lambda k: scores.p_accept_fast[k])
            need = scores.p_need_fast[i] if policy == "dynamic" else 1.0
            critical = (1 - scores.p_accept_fast[i]) / (scores.p_accept_fast[i] * need)
            ranked.append((critical, scores.y_need[i] * scores.y_accept[i]))
        points, helped = [(0.0, 0.0)], 0.0
        ranked.sort()
        for k, (critical, gold) in enumerate(ranked):
            helped += gold
            if k + 1 == len(ranked) or ranked[k + 1][0] > critical:
                points.append(((k + 1) / len(ranked), helped / len(ranked)))
        area = sum((x - w) * (y + v) / 2 for (w, v), (x, y) in itertools.pairwise(points))
        row = next(row for row in across.rows if row.policy == policy and row.form == "raw")
        assert row.audbc == pytest.approx(area / (pi - pi**2 / 2), rel=1e-9), policy
        chance = points[-1][1] / (2 * pi - pi**2)
        assert row.audbc_rescaled == pytest.approx((row.audbc - chance) / (1 - chance), rel=1e-9), policy


def test_the_trace_and_the_groups_show_the_candidate_decided_on():
    scores, point = Scores.from_columns(make_two_passes()[0]), OperatingPoint(margin=0.2)
    evaluation = protocol.evaluate(scores, IDENTITY, point)
    trace, table = evaluation.trace, table_by_hand(scores)
    assert trace.slow.any() and not trace.slow.all()
    for i, (stream, step) in enumerate(zip(trace.stream, trace.step, strict=True)):
        row, offer, slow = decide_by_hand(scores, table[stream, int(step)], "slow_on_margin", point)
        thinking = "slow" if slow else "fast"
        assert (trace.decision[i], trace.slow[i], trace.y_accept[i]) == (offer, slow, scores.y_accept[row])
        assert trace.p_accept[i] == pytest.approx(getattr(scores, f"p_accept_{thinking}")[row], rel=1e-12)
    _, _, steps = costs_by_hand(scores, "slow_on_margin", point)
    domains = scores.steps().domain
    for group in evaluation.groups:
        assert group.realised_cost == pytest.approx(steps[domains == group.value, 0].mean(), rel=1e-12)


def test_the_slow_pass_needs_slow_signals_for_every_candidate():
    columns, rng = make_two_passes()
    lost = rng.random(1200) < 0.01
    for name in ("p_need_slow", "p_accept_slow"):
        columns[name] = np.where(np.repeat(lost.reshape(-1, 3).any(1), 3), np.nan, columns[name])
    evaluation = protocol.evaluate(Scores.from_columns(columns), IDENTITY, OperatingPoint())
    count = int(np.isnan(columns["p_need_slow"]).sum())
    assert f"slow pass: p_accept_slow is null on {count} of 1200 test rows" in evaluation.switched_off
    assert not any(row.policy.startswith("slow") for row in evaluation.policies)
    with pytest.raises(ScoresError, match="p_accept_slow"):
        Scores.from_columns(columns).steps("slow")


def test_a_log_that_never_shows_the_other_candidate_has_no_slow_pass():
    """Labels of the fast pass's candidate only: nothing is known of another one."""
    columns, _ = make_two_passes()
    scores = Scores.from_columns(columns)
    differs = scores.steps().candidate != scores.steps("slow").candidate
    chosen = {
        (stream, int(step)): int(number)
        for stream, step, number in zip(
            scores.steps().stream, scores.steps().step, scores.steps().candidate, strict=True
        )
    }
    shown = [
        chosen[stream, int(step)] == number
        for stream, step, number in zip(columns["stream"], columns["step"], columns["candidate"], strict=True)
    ]
    columns["y_accept"] = np.where(shown, columns["y_accept"], np.nan)
    evaluation = protocol.evaluate(Scores.from_columns(columns), IDENTITY, OperatingPoint())
    assert evaluation.counts.judged == 400 - differs.sum()
    both = np.repeat(differs, CANDIDATES)
    only = Scores.from_columns(columns).take(both)
    evaluation = protocol.evaluate(only, IDENTITY, OperatingPoint())
    assert "slow pass: no test step has labels of both passes' candidates" in evaluation.switched_off
    assert evaluation.counts.judged == differs.sum()


@pytest.mark.parametrize("drawn", [[0.5], [0.5, 0.9]])
def test_a_log_that_shows_offers_by_chance_has_no_slow_pass_of_other_offers(drawn):
    """Where the passes disagree, both labels are known by chance only, which the weight of neither corrects."""
    columns, rng = make_two_passes()
    columns["propensity"] = rng.choice(drawn, 1200)
    columns["logged"] = rng.random(1200) < columns["propensity"]
    columns["y_accept"] = np.where(columns["logged"], columns["y_accept"], np.nan)
    scores = Scores.from_columns(columns)
    differs = scores.steps().candidate != scores.steps("slow").candidate
    evaluation = protocol.evaluate(scores, IDENTITY, OperatingPoint())
    found = (
        f"slow pass: at {differs.sum()} of 400 test steps it picks another candidate than the fast pass, and the log "
        "showed one of them by chance or not at all"
    )
    assert found in evaluation.switched_off
    without = {name: column for name, column in columns.items() if not name.endswith("_slow")}
    alone = protocol.evaluate(Scores.from_columns(without), Calibration(FIT, FIT), OperatingPoint())
    assert evaluation.counts == alone.counts
    assert list(map(str, evaluation.policies)) == list(map(str, alone.policies))  # some rates are NaN


def test_offers_that_were_certain_to_be_shown_are_compared():
    columns, _ = make_two_passes()
    plain = protocol.evaluate(Scores.from_columns(columns), IDENTITY, OperatingPoint())
    columns["logged"], columns["propensity"] = np.ones(1200), np.ones(1200)
    logged = protocol.evaluate(Scores.from_columns(columns), IDENTITY, OperatingPoint())
    assert list(map(str, logged.policies)) == list(map(str, plain.policies))  # some rates are NaN
    assert any(row.policy == "slow_on_margin" for row in logged.policies)


@pytest.mark.parametrize("seed", range(4))
def test_no_area_exceeds_the_oracles_however_bad_the_fast_candidates_are(seed):
    columns, rng = make_two_passes(seed)
    columns["y_accept"] = (np.asarray(columns["p_accept_slow"]) > 0.6).astype(float)  # as the slow pass ranks them
    columns["p_accept_fast"] = rng.random(1200)
    scores = Scores.from_columns(columns)
    across = protocol.evaluate(scores, IDENTITY, OperatingPoint(margin=0.3)).ratios
    for row in across.rows:
        if row.audbc is not None:
            assert 0 <= row.audbc_low <= row.audbc <= row.audbc_high <= 1, row
    never = next(row for row in across.rows if row.policy == "never")
    clairvoyant = next(row for row in across.rows if row.policy == "clairvoyant")
    assert never.mean_cost_rescaled == 0
    for row in across.rows:  # one scale for all policies
        assert row.mean_cost_rescaled <= 1, row
        share = (never.mean_cost - row.mean_cost) / (never.mean_cost - clairvoyant.mean_cost)
        assert row.mean_cost_rescaled == pytest.approx(share, rel=1e-9), row
