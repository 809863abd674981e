"""Moves and tokens of the slow pass: their fit on calibration rows, and calibration.json."""

import json

import numpy as np
import pytest
from synthetic_scores import POINT, changed, in_folds, logit, make_columns, make_scores, without

from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.fits import read_calibration, write_calibration
from prism_jax.evaluation.signals import MOST_LOG_ODDS
from prism_jax.scores import Scores


def with_tokens(seed=0, **knobs):
    columns = make_columns(seed, **knobs)
    columns["tokens_slow"] = np.random.default_rng(seed).integers(40, 200, len(columns["step"]))
    return columns


def test_the_fit_is_the_second_moment_of_calibrated_moves_on_calibration_steps():
    scores = Scores.from_columns(with_tokens())
    fits = protocol.calibrate(scores)
    rows = splits.rows_of(scores, "calibration")

    def log_odds(name):
        return logit(getattr(rows, f"p_{name}")) / getattr(fits, name).temperature

    accept = log_odds("accept_slow") - log_odds("accept_fast")
    need = log_odds("need_slow") - log_odds("need_fast")
    assert abs(log_odds("accept_fast")).max() < MOST_LOG_ODDS
    expected = (np.mean(accept**2), np.mean(need**2), np.mean(accept * need))
    assert fits.thinking.moves == pytest.approx(expected, rel=1e-9)
    assert fits.thinking.tokens == pytest.approx(rows.tokens_slow.mean())
    assert fits.thinking.count == len(rows)


def test_steps_without_labels_count():
    scores = Scores.from_columns(with_tokens())
    fits = protocol.calibrate(scores)
    unlabelled = changed(scores, np.arange(len(scores)) % 2 == 0, y_accept=np.nan)
    found = protocol.calibrate(unlabelled).thinking
    assert found.count == fits.thinking.count


def test_each_pass_counts_with_its_own_candidate():
    columns = with_tokens(splits=("calibration",))
    n = len(columns["step"])
    columns["candidate"], columns["step"] = np.arange(n) % 2, np.arange(n) // 2 % 6
    for name in ("p_need_fast", "p_need_slow", "p_need_true", "y_need", "time"):
        columns[name] = np.repeat(np.asarray(columns[name])[::2], 2)
    columns["p_both_true"] = columns["p_need_true"] * columns["p_accept_true"]
    scores = Scores.from_columns(columns)
    fits = protocol.calibrate(scores)
    pairs = {name: getattr(scores, name).reshape(-1, 2) for name in ("p_accept_fast", "p_accept_slow", "tokens_slow")}
    moves, tokens = [], []
    for fast, slow, spent in zip(pairs["p_accept_fast"], pairs["p_accept_slow"], pairs["tokens_slow"], strict=True):
        moves.append(
            logit(slow.max()) / fits.accept_slow.temperature - logit(fast.max()) / fits.accept_fast.temperature
        )
        tokens.append(spent[slow.argmax()])
    assert fits.thinking.moves.accept == pytest.approx(np.mean(np.square(moves)), rel=1e-9)
    assert fits.thinking.tokens == pytest.approx(np.mean(tokens))


def test_steps_without_slow_signals_on_every_candidate_are_left_out():
    scores = Scores.from_columns(with_tokens())
    lost = np.arange(len(scores)) % 3 == 0
    fits = protocol.calibrate(changed(scores, lost, p_need_slow=np.nan, p_accept_slow=np.nan))
    known = (~lost & (scores.split == "calibration")).sum()
    assert fits.thinking.count == known


def test_certain_probabilities_move_by_a_bounded_amount():
    scores = Scores.from_columns(with_tokens())
    certain = changed(scores, np.arange(len(scores)) == 0, p_accept_fast=0.0)
    assert scores.split[0] == "calibration"
    fits = protocol.calibrate(certain)
    assert fits.thinking.moves.accept <= (2 * MOST_LOG_ODDS) ** 2


def test_without_slow_signals_there_is_nothing_to_fit(tmp_path):
    fits = protocol.calibrate(make_scores(slow=False))
    assert fits.thinking is None
    assert "thinking" not in fits.to_dict()
    assert fits.moves(make_scores(slow=False)) is None


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("tokens", [False, True])
def test_calibration_json_keeps_the_fit(tmp_path, folds, tokens):
    columns = in_folds(with_tokens(), 3) if folds else with_tokens()
    scores = Scores.from_columns(columns if tokens else without(columns, "tokens_slow"))
    fits = protocol.calibrate(scores)
    write_calibration(tmp_path / "calibration.json", fits)
    assert read_calibration(tmp_path / "calibration.json") == fits
    assert (fits.slow_tokens(scores) is not None) == tokens
    if folds:
        for fold, part in fits.folds.items():
            inside = scores.fold == fold
            assert part.thinking == protocol.calibrate(scores.take(~inside)).thinking
            np.testing.assert_array_equal(np.asarray(fits.moves(scores).accept)[inside], part.thinking.moves.accept)
        assert len({part.thinking for part in fits.folds.values()}) == 3


def test_a_file_without_the_fit_is_read_and_switches_the_policy_off(tmp_path):
    scores = Scores.from_columns(with_tokens())
    tree = protocol.calibrate(scores).to_dict()
    del tree["thinking"]
    (tmp_path / "calibration.json").write_text(json.dumps(tree))
    fits = read_calibration(tmp_path / "calibration.json")
    assert fits.thinking is None
    evaluation = protocol.evaluate(scores, fits, POINT)
    assert "slow on value: the calibration has no moves of the slow pass" in evaluation.switched_off
    assert "slow_on_value" not in {row.policy for row in evaluation.policies}
    assert {row.trigger for row in evaluation.triggers.rows} == {"never", "always", "margin", "entropy", "random"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accept": -1.0}, "thinking.moves.accept: found -1"),
        ({"both": 1e9}, "thinking.moves.both: found 1e"),
        ({"tokens": 0.0}, "thinking.tokens: found 0.0"),
        ({"count": 0}, "thinking.count: found 0"),
    ],
)
def test_a_bad_fit_is_refused_by_place(tmp_path, change, message):
    tree = protocol.calibrate(Scores.from_columns(with_tokens())).to_dict()
    tree["thinking"] |= change
    (tmp_path / "calibration.json").write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=message):
        read_calibration(tmp_path / "calibration.json")
