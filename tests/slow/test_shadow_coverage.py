"""What shadow mode reports at the host's offers, beside what the gate would truly have cost there, over drawn logs.

    python -m pytest -s -m study tests/slow/test_shadow_coverage.py

prints the table of docs/service.md.
"""

from typing import NamedTuple

import numpy as np
import pytest

from prism_jax.agent.service.shadow import shadow_report, watched_of
from prism_jax.decision import gate
from prism_jax.decision.uncertainty import mean_interval

pytestmark = pytest.mark.study

C_FA, C_FN, LOGS, STREAMS, STEPS = 1.0, 2.0, 200, 40, 25


class Log(NamedTuple):
    """Decisions of a host that offers at four of five steps while a gate watches. Of two, the host offers the first."""

    stream: np.ndarray
    p_need: np.ndarray  # what the gate believes
    p_accept: np.ndarray  # that of the candidate that it ranks first
    host: np.ndarray
    ours: np.ndarray
    y_need: np.ndarray
    y_accept: np.ndarray  # [candidates, steps]
    change: np.ndarray  # cost of the gate minus that of the host where the host offers, else 0


def draw(rng, streams, *, bias=0.0, candidates=1):
    """A log; `bias` is how far the model's log-odds of need are off."""
    stream = np.repeat(np.arange(streams), STEPS)
    shift = rng.normal(0, 0.5, (2, streams))[:, stream]
    z_need = rng.normal(-0.5, 1.2, len(stream)) + shift[0]
    accept = sigmoid(rng.normal(-0.7, 1.2, (candidates, len(stream))) + shift[1])
    y_need, y_accept = rng.random(len(stream)) < sigmoid(z_need), rng.random(accept.shape) < accept
    best, steps = accept.argmax(axis=0), np.arange(len(stream))
    p_need, p_accept = sigmoid(z_need + bias), accept[best, steps]
    ours, host = np.asarray(gate.decide(p_need, p_accept, C_FA, C_FN)), rng.random(len(stream)) < 0.8
    of_gate = np.where(ours, C_FA * (1 - y_accept[best, steps]), C_FN * (y_need & y_accept.any(axis=0)))
    return Log(stream, p_need, p_accept, host, ours, y_need, y_accept, host * (of_gate - C_FA * (1 - y_accept[0])))


def records(rng, log, *, answered=1.0, reported=1.0, judged=0.0):
    """The records, with the outcomes of the share `answered` of offers, of dismissals the share `reported` of these.

    Of the accepted ones, a share `judged` says whether help was needed.
    """
    told = (rng.random(len(log.host)) < answered) & (log.y_accept[0] | (rng.random(len(log.host)) < reported))
    asked = rng.random(len(log.host)) < judged
    for i, stream in enumerate(log.stream):
        offer = f"{stream}/{i}" if log.host[i] else None
        yield {
            **{"kind": "decision", "stream": str(stream), "offer": offer, "spoke": bool(log.host[i])},
            **{"p_need": float(log.p_need[i]), "p_accept": float(log.p_accept[i])},
            **{"candidates": [f"{k}" for k in range(len(log.y_accept))], "costs": {"c_fa": C_FA, "c_fn": C_FN}},
            "shadow": {"would_speak": bool(log.ours[i])},
        }
        if offer and told[i]:
            outcome = "accepted" if log.y_accept[0, i] else "dismissed"
            needed = bool(log.y_need[i]) if asked[i] and log.y_accept[0, i] else None
            yield {"kind": "outcome", "stream": str(stream), "offer": offer, "outcome": outcome, "needed": needed}


def as_if_accepted_were_needed(lines):
    """The mean with each accepted offer at C_FN, without those that nobody has answered."""
    outcomes = {one["offer"]: one["outcome"] for one in lines if one["kind"] == "outcome"}
    costs, streams = [], []
    for one in lines:
        if one["kind"] == "decision":
            withheld = one["spoke"] and not one["shadow"]["would_speak"]
            outcome = outcomes.get(one["offer"]) if withheld else "same"
            if outcome is not None:
                costs.append({"same": 0.0, "accepted": C_FN, "dismissed": -C_FA}[outcome])
                streams.append(one["stream"])
    return mean_interval(np.array(costs), np.array(streams))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


SETTINGS = {
    "all answered, no need judged": ({}, {}),
    "a third of the needs judged": ({}, {"judged": 1 / 3}),
    "the same, p_need too high by 1 in log-odds": ({"bias": 1.0}, {"judged": 1 / 3}),
    "half of the offers answered": ({}, {"answered": 0.5, "judged": 1 / 3}),
    "a fifth of the dismissals reported": ({}, {"reported": 0.2, "judged": 1 / 3}),
    "two candidates": ({"candidates": 2}, {"judged": 1 / 3}),
}


def test_the_intervals_of_shadow_mode_hold_the_truth():
    print(f"\n{LOGS} logs of {STREAMS} streams; mean estimate and coverage in percent")
    print("| log | truth | accepted as needed, answered only | reported | by judged needs alone |")
    found = {}
    for name, (of_log, told) in SETTINGS.items():
        truth = float(draw(np.random.default_rng(99), 20_000, **of_log).change.mean())
        rng, rows = np.random.default_rng(1), []
        for _ in range(LOGS):
            lines = list(records(rng, draw(rng, STREAMS, **of_log), **told))
            report = shadow_report(map(watched_of, lines))
            each = as_if_accepted_were_needed(lines), report.withheld_cost, report.judged_cost
            rows.append([(one.value, one.low <= truth <= one.high) for one in each])
        found[name] = np.array(rows, np.float64).mean(axis=0)
        cells = (f"{value:+.3f}, {100 * held:.0f}" for value, held in found[name])
        print(f"| {name} | {truth:+.3f} | {' | '.join(cells)} |")
    held = {name: rows[:, 1] for name, rows in found.items()}
    biased = held.pop("the same, p_need too high by 1 in log-odds")
    assert biased[2] >= 0.9
    assert all(rows[1] >= 0.9 for rows in held.values())
    assert all(rows[2] >= 0.9 for name, rows in held.items() if "no need judged" not in name)
    assert all(rows[0] < 0.5 for rows in held.values())
