"""Logs with several candidates: where the slow pass runs, it ranks a step's candidates itself."""

import itertools

import numpy as np
import pytest
from synthetic_scores import FIT, IDENTITY, as_log, make_two_passes, without

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.evaluation.fits import Calibration
from prism_jax.scores import Scores, ScoresError


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


def decide_by_hand(scores, rows, policy, point, base_rate=0.5):
    """One step: the row decided about, the offer, and whether the slow pass ran."""
    fast = max(rows, key=lambda i: scores.p_accept_fast[i])
    need, accept = scores.p_need_fast[fast], scores.p_accept_fast[fast]

    def tau(p_need):
        return point.c_fa / (point.c_fa + point.c_fn * p_need)

    distance = abs(accept - tau(need))
    if policy == "slow_only" or (policy == "slow_on_margin" and point.margin > 0 and distance <= point.margin):
        slow = max(rows, key=lambda i: scores.p_accept_slow[i])
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
        "need_only": base_rate >= tau(need),
    }
    return fast, offers.get(policy, accept >= tau(need)), False


BY_HAND = ("always", "never", "bayes", "clairvoyant", "fixed", "static", "product", "dynamic")
WITH_SLOW = (*BY_HAND, "slow_only", "slow_on_margin")


def count_by_hand(scores, policy, point, base_rate=0.5):
    """A policy's row: costs and cells of judged steps by weight, the expected cost and shares of all steps.

    A step is judged where its need and the answers to both passes' offers are known, whatever else is unlabelled. The
    clairvoyant policy is counted at judged steps alone. Beside it, the realised cost of each judged step.
    """
    cells, judged, everywhere = dict.fromkeys(("tp", "fp", "fn", "tn"), 0.0), [], []
    for rows in table_by_hand(scores).values():
        signals = [p for p in (scores.p_accept_fast, scores.p_accept_slow) if p is not None]
        picks = [max(rows, key=lambda i, p=p: p[i]) for p in signals]
        known = not np.isnan(scores.y_need[rows[0]] + sum(scores.y_accept[i] for i in picks))
        if policy == "clairvoyant" and not known:
            continue
        i, offer, slow = decide_by_hand(scores, rows, policy, point, base_rate)
        silence = point.c_fn * silence_by_hand(scores, rows, "truth")
        everywhere.append((point.c_fa * (1 - scores.p_accept_true[i]) if offer else silence, offer, slow))
        if known:
            weight = 1.0 if scores.propensity is None else min(1 / max(scores.propensity[picks[0]], 0.05), 20)
            gold, missed = scores.y_need[i] * scores.y_accept[i], silence_by_hand(scores, rows)
            cells["tp" if offer else "fn"] += weight * (gold if offer else missed)
            cells["fp" if offer else "tn"] += weight * (1 - gold if offer else 1 - missed)
            costs = [point.c_fa * (1 - y) if offer else point.c_fn * missed for y in (scores.y_accept[i], gold)]
            judged.append((weight, *costs))
    weight, *costs = np.array(judged).T
    numbers = (*(np.average(cost, weights=weight) for cost in costs), *np.mean(everywhere, axis=0))
    names = ("realised_cost", "gold_cost", "expected_cost", "speak_rate", "slow_rate")
    found = dict(zip(names, numbers, strict=True)) | cells
    return found | ({"slow_rate": None} if scores.p_accept_slow is None else {}), costs[0]


def row_of(evaluation, policy):
    """The row of a policy, on raw signals where it has any."""
    return next(row for row in evaluation.policies if row.policy == policy and row.form in (None, "raw"))


def check_row(row, expected):
    if row.policy == "clairvoyant":
        offers, silences = expected["tp"] + expected["fp"], expected["fn"] + expected["tn"]
        expected = without(expected, "expected_cost", "slow_rate") | {"speak_rate": offers / (offers + silences)}
    for name, value in expected.items():
        assert getattr(row, name) == (value and pytest.approx(value, rel=1e-12, abs=1e-12)), (row.policy, name)


def of_case(case, seed):
    columns, rng = make_two_passes(seed)
    if case == "soft":
        columns |= {"y_accept": rng.random(1200), "y_need": np.repeat(rng.random(400), 3)}
    if case == "partly labelled":
        columns["y_accept"] = np.where(rng.random(1200) < 0.3, np.nan, columns["y_accept"])
        columns["y_need"] = np.where(np.repeat(rng.random(400) < 0.1, 3), np.nan, columns["y_need"])
    if case == "logged":
        columns = as_log(without(columns, "p_need_slow", "p_accept_slow"), rng.choice([0.3, 0.9], 1200), rng)
    return Scores.from_columns(columns)


CASES = ("hard", 0), ("hard", 1), ("soft", 2), ("partly labelled", 0), ("partly labelled", 1), ("logged", 0)


@pytest.mark.parametrize("margin", [0.05, 0.2])
@pytest.mark.parametrize(("case", "seed"), CASES)
def test_each_policy_counts_its_own_offers_and_all_count_one_silence(case, seed, margin):
    scores, point = of_case(case, seed), OperatingPoint(margin=margin)
    if case != "logged":
        assert (scores.steps().candidate != scores.steps("slow").candidate).sum() > 20
    evaluation = protocol.evaluate(scores, IDENTITY, point)
    assert (20 < evaluation.counts.judged < 380) == (case in ("partly labelled", "logged"))
    never, bayes = (count_by_hand(scores, policy, point)[0] for policy in ("never", "bayes"))
    assert evaluation.counts.positive == pytest.approx(never["realised_cost"] / point.c_fn)
    for policy in BY_HAND if case == "logged" else WITH_SLOW:
        row, expected = row_of(evaluation, policy), count_by_hand(scores, policy, point)[0]
        check_row(row, expected)
        assert row.difference == pytest.approx(row.realised_cost - evaluation.deployed.realised_cost)
        if policy == "clairvoyant" and row.realised_cost == 0:  # whatever the labels are
            assert row.realised_low is None and row.realised_high is None
        else:
            assert row.realised_low <= row.realised_cost <= row.realised_high
        if policy != "clairvoyant":
            assert row.regret == pytest.approx(expected["expected_cost"] - bayes["expected_cost"], rel=1e-9, abs=1e-12)
        assert row_of(evaluation, "clairvoyant").realised_cost <= row.realised_cost


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
            costs.append(count_by_hand(scores, policy, one)[0]["realised_cost"] / (1 + ratio))
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
    _, costs = count_by_hand(scores, "slow_on_margin", point)
    domains = scores.steps().domain
    for group in evaluation.groups:
        assert group.realised_cost == pytest.approx(costs[domains == group.value].mean(), rel=1e-12)


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


def test_the_truth_is_needed_of_every_candidate():
    columns, _ = make_two_passes()
    chosen = [max(rows, key=lambda i: columns["p_accept_fast"][i]) for rows in np.arange(1200).reshape(-1, 3).tolist()]
    other = np.isin(np.arange(1200), chosen, invert=True)
    columns["p_both_true"] = np.where(other, np.nan, columns["p_both_true"])
    evaluation = protocol.evaluate(Scores.from_columns(columns), IDENTITY, OperatingPoint())
    assert any(line.endswith("p_both_true is null on 800 of 1200 test rows") for line in evaluation.switched_off)
    assert all(row.expected_cost is None for row in evaluation.policies)


def test_a_log_that_never_shows_the_other_candidate_has_no_slow_pass():
    """Labels of the fast pass's candidate only: nothing is known of another one."""
    columns, _ = make_two_passes()
    scores = Scores.from_columns(columns)
    differs = scores.steps().candidate != scores.steps("slow").candidate
    shown = scores.candidate == scores.steps().candidate[scores.step_numbers()]
    columns["y_accept"] = np.where(shown, columns["y_accept"], np.nan)
    evaluation = protocol.evaluate(Scores.from_columns(columns), IDENTITY, OperatingPoint())
    assert evaluation.counts.judged == 400 - differs.sum()
    both = np.repeat(differs, 3)
    only = Scores.from_columns(columns).take(both)
    evaluation = protocol.evaluate(only, IDENTITY, OperatingPoint())
    assert "slow pass: no test step has labels of both passes' candidates" in evaluation.switched_off
    assert evaluation.counts.judged == differs.sum()


@pytest.mark.parametrize("drawn", [[0.5], [0.5, 0.9]])
def test_a_log_that_shows_offers_by_chance_has_no_slow_pass_of_other_offers(drawn):
    """Where the passes disagree, both labels are known by chance only, which the weight of neither corrects."""
    columns, rng = make_two_passes()
    columns = as_log(columns, rng.choice(drawn, 1200), rng)
    scores = Scores.from_columns(columns)
    differs = scores.steps().candidate != scores.steps("slow").candidate
    evaluation = protocol.evaluate(scores, IDENTITY, OperatingPoint())
    found = (
        f"slow pass: at {differs.sum()} of 400 test steps it picks another candidate than the fast pass, and the log "
        "showed one of them by chance or not at all"
    )
    assert found in evaluation.switched_off
    fast = Scores.from_columns(without(columns, "p_need_slow", "p_accept_slow"))
    alone = protocol.evaluate(fast, Calibration(FIT, FIT), OperatingPoint())
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
