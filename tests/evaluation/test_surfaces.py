"""The gate over costs and slow triggers: every count equals the gate's own decisions."""

import numpy as np
import pytest
from synthetic_scores import POINT, make_columns, make_scores

from prism_jax.decision import gate, thinking
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol, surfaces
from prism_jax.scores import Scores


def columns_of(candidates=1, unknown=True, seed=0, **knobs):
    """Columns with personas, tokens, unknown labels and several candidates per step."""
    columns = make_columns(seed=seed, streams=24, **knobs)
    rng = np.random.default_rng(seed)
    count = len(columns["stream"])
    columns["persona"] = [("eager", "reserved")[int(name.split("-")[1]) // 6 % 2] for name in columns["stream"]]
    columns["tokens_slow"] = rng.integers(5, 60, count)
    columns = {name: np.repeat(np.asarray(column), candidates) for name, column in columns.items()}
    rows = count * candidates
    columns["candidate"] = np.tile(np.arange(candidates), count)
    if candidates > 1:
        columns["tokens_slow"] = columns["tokens_slow"].astype(float)
        accept = {name: rng.random(rows) for name in ("p_accept_fast", "p_accept_slow")}
        columns["y_accept"] = (rng.random(rows) < accept["p_accept_slow"]).astype(float)
        columns |= {name: p for name, p in accept.items() if name in columns}
    if unknown:
        columns["y_accept"] = np.where(rng.random(rows) < 0.1, np.nan, columns["y_accept"])
    return columns


MARGIN = OperatingPoint(trigger="margin")


def explored(columns, point=MARGIN):
    scores = Scores.from_columns(columns)
    calibration = protocol.calibrate(scores)
    return protocol.explore(scores, calibration, point), calibration


def counted(found, table, setting, ratio, calibration):
    """The counts of one cell by the library's decisions, step by step."""
    r, s = float(found.ratios[ratio]), float(table.settings[setting])
    if table.trigger == "none":
        offer, slow = np.asarray(gate.decide(*found.passes[0], 1.0, r)), np.zeros(len(found.stream), bool)
    elif table.trigger == "margin":
        offer, slow = gate.decide_with_slow(*found.passes, 1.0, r, s)
    else:
        fit = calibration.thinking
        offer, slow = thinking.decide_by_value(*found.passes, 1.0, r, fit.moves, s, fit.tokens)
    accept = np.where(slow, found.y_accept[-1], found.y_accept[0])
    gold, judged = found.y_need * accept == 1, found.judged
    member = {
        "tp": judged & offer & gold,
        "fp": judged & offer & ~gold,
        "fn": judged & ~offer & (found.y_need * found.y_best == 1),
        "rejected": judged & offer & (accept == 0),
        "offers": offer,
        "slow": slow,
    }
    groups = len(found.groups)
    return {name: np.bincount(found.group[chosen], minlength=groups).tolist() for name, chosen in member.items()}, slow


@pytest.mark.parametrize(("candidates", "slow"), [(1, True), (1, False), (3, True), (3, False)])
def test_every_count_is_that_of_the_gates_decisions(candidates, slow):
    columns = columns_of(candidates, slow=slow)
    found, calibration = explored(columns)
    best = {}
    for stream, step, answer in zip(columns["stream"], columns["step"], columns["y_accept"], strict=True):
        best[stream, step] = max(best.get((stream, step), -1), -1 if np.isnan(answer) else answer)
    assert [best[key] for key in zip(found.stream, found.step, strict=True)] == np.nan_to_num(
        found.y_best, nan=-1
    ).tolist()
    assert found.judged.any() and not found.judged.all()
    assert [table.trigger for table in found.tables] == (["margin", "value"] if slow else ["none"])
    rng = np.random.default_rng(1)
    for table in found.tables:
        for _ in range(40):
            setting, ratio = rng.integers(len(table.settings)), rng.integers(len(found.ratios))
            expected, thinks = counted(found, table, setting, ratio, calibration)
            assert {name: getattr(table, name)[:, setting, ratio].tolist() for name in expected} == expected
            if table.reach is not None:
                assert ((table.reach[:, ratio] > setting) == thinks).all()


@pytest.mark.parametrize("candidates", [1, 3])
@pytest.mark.parametrize(
    "point", [OperatingPoint(c_fn=2.3, margin=0.07, trigger="margin"), OperatingPoint(c_fa=2.0, trigger="value")]
)
def test_the_deployed_cell_is_the_deployed_row_of_the_evaluation(point, candidates):
    columns = columns_of(candidates)
    found, calibration = explored(columns, point)
    row = protocol.evaluate(Scores.from_columns(columns), calibration, point).deployed
    table = found.tables[0]
    assert table.trigger == point.trigger
    cell = {name: int(getattr(table, name)[:, table.deployed, found.deployed].sum()) for name in ("tp", "fp", "fn")}
    assert cell == {name: getattr(row, name) for name in cell}
    slow, offers = (getattr(table, name)[:, table.deployed, found.deployed].sum() for name in ("slow", "offers"))
    assert (slow / len(found.stream), offers / len(found.stream)) == (row.slow_rate, row.speak_rate)


def test_groups_are_pairs_until_there_are_too_many(monkeypatch):
    columns = columns_of()
    found = explored(columns)[0]
    assert found.columns == ("domain", "persona") and len(found.groups) == 6
    columns["persona"] = [f"{name} himself" for name in columns["stream"]]
    found = explored(columns)[0]
    assert (found.columns, len(found.groups)) == (("domain", "persona"), 12)  # twelve test streams
    for most, columns_left, groups in ((5, ("domain",), 3), (2, (), 1)):
        monkeypatch.setattr(surfaces, "MOST_GROUPS", most)
        found = explored(columns)[0]
        assert (found.columns, len(found.groups)) == (columns_left, groups)


def test_soft_and_weighted_labels_are_not_counted_and_the_reason_says_so():
    columns = columns_of(unknown=False)
    columns["y_need"][-1] = 0.5
    columns["y_need"][-1 - 12] = 0.5
    assert "soft, neither 0 nor 1" in explored(columns)[0]
    weighted = make_scores(logging=True)
    assert "inverse-propensity weights" in protocol.explore(weighted, protocol.calibrate(weighted), POINT)
