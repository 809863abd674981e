"""The rule of a log on its own score, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.decision.calibration import Map, Rule, rules_by_group
from prism_jax.decision.score_maps import SCORE, Scale
from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.answers.own_score import MAPS, OwnScore
from prism_jax.report.numbers import show_estimate


def said_of_score(own: OwnScore, compared: Mapping[str, Estimate] | None) -> str:
    """Whether the score is a probability, in a sentence with its numbers; `compared` is None where it cannot be one."""
    if compared is None:
        return f"{own.column} is no probability: it goes from {own.low:.5g} to {own.high:.5g}; Platt's map makes one."
    lower, said, accepted = compared["correction"], own.means["said"], own.means["accepted"]
    if lower.low > 0:
        verdict, apart = f"{own.column} is no probability of acceptance as it is", ""
    else:
        verdict = f"{own.column} can be taken as the probability of acceptance"
        apart = "" if lower.high < 0 else ", which is not told apart from 0"
    return (
        f"{verdict}: it says {said:.1%} on average where {accepted:.1%} were accepted, and Platt's map, fitted on "
        f"other people, lowers its Brier score by {show_estimate(lower)}{apart}."
    )


def sentences(own: OwnScore, measured: str = "") -> list[str]:
    """What to deploy on the score, why by this map, and what the other maps would say.

    `measured` are words for the offers and weights of Brier scores, where these are not all offers alike.
    """
    rule = own.rule
    lines = [f"On your own score: {deployed(own.column, rule, own.low, own.high, sign=own.sign)}"]
    others = [f"{own.brier[name]:.3f} ({MAPS[name]})" for name in own.maps if name != own.best]
    lines.append(
        f"That is where {MAPS[own.best]}, fitted on everybody, "
        f"{'is' if own.best == SCORE else 'makes the probability of acceptance'} {own.threshold:.4g} or more."
    )
    if others:
        lines.append(
            f"On people that it was not fitted on, its Brier score{measured} is {own.brier[own.best]:.3f}, "
            f"the lowest; the others: {', '.join(others)}."
        )
    if own.certain:
        lines.append(
            f"Scores that are exactly 0 or 1: {own.certain:,}. No temperature moves them, and they are left out of its "
            "fit; for Platt's map they count as the largest other log-odds, and at least as those of 1 label in 22."
        )
    if own.brier[own.best] >= own.brier["constant"]:
        lines.append(
            f"The constant rate of acceptance is at least as good ({own.brier['constant']:.3f} against "
            f"{own.brier[own.best]:.3f}): this score does not tell who accepts."
        )
    return lines


def deployed(column: str, rule: Rule, low: float | None = None, high: float | None = None, sign: str = "") -> str:
    """A rule as an instruction, with what it means between the smallest and the largest score that are known."""
    if rule.value is None:
        return f"{rule.offer} offer; no value of {column} changes the decision at these costs."
    words = f"offer where {column} {rule.in_words()}{sign}."
    if rule.offer == "at_most":
        words += " A higher score goes with fewer acceptances here."
    if low is not None and high is not None:
        ends = rule.offers(np.array([low, high]))
        if ends.all():
            words += " Every score of the log is on that side, so this always offers."
        elif not ends.any():
            words += " No score of the log is on that side, so this never offers."
    return words


def promised(fitted: Map, ratio: float, scale: Scale | None = None, column: str = "p_accept_fast") -> dict[str, Any]:
    """The gate that keeps a promise on acceptance alone, as a rule on the score that the table was made of.

    The gate offers where p_accept by the certified map is at least 1 / (1 + ratio), with ratio = C_FN / C_FA. `scale`
    says how a log's score became `p_accept_fast` (`log_scores.scale_of_log`); None where that column is the score
    itself.

    Returns:
      `sentences` to print, and for JSON `column` and `rules`: the rule of each group of a map by domain, or the one
      rule under no name.
    """
    scale = Scale() if scale is None else scale
    rules = {name: scale.on_score(rule) for name, rule in rules_by_group(fitted, 1 / (1 + ratio)).items()}
    lines = [
        f"On your own score{f', in {name}' if name else ''}: {deployed(column, rule, sign=scale.sign)}"
        for name, rule in rules.items()
    ]
    lines.append(f"That is where the calibrated probability of acceptance is {1 / (1 + ratio):.4g} or more.")
    return {
        "sentences": lines,
        "column": column,
        "rules": {name: rule._asdict() for name, rule in rules.items()},
    }
