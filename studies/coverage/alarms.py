"""How often and how soon the alarm for drift rings: on simulated people, and on a log of offers.

Simulated: false alarms over null replays, and the delay after a shift of the log-odds. On a log, two forecasts are
watched, each made from other people and the person's past: the acceptance rate of the others, and the person layer on
top of it. Then the mood of everybody changes in the middle of their answers, and nothing is fitted anew
(docs/personal_agent.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from prism_jax.decision import alarm
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.people.layer import fit_population, prequential
from prism_jax.report.numbers import DASH, number, percent
from prism_jax.report.table import Column, Row, Section, Table
from studies.coverage.drawing import turned

SHIFTS = (0.25, 0.5, 1.0, 2.0, -1.0)
FOLDS = 5
ALPHA = 0.05
"""Probability of a false alarm at any time."""
RATE, LAYER = "rate of the others", "person layer"


def replay(
    shift: float, people: int, *, answers: int = 300, withdrawn: float = 0.0, seed: int = 0
) -> Int[np.ndarray, " people"]:
    """The number of offers after which the alarm of each simulated person first rings, -1 where it never does.

    `shift` is what lies between the true log-odds and those of the forecasts, 0 for a null replay. `withdrawn` is the
    share of the refusals that are never heard of, because they end the stream.
    """
    rng = np.random.default_rng(seed)
    state: Any = alarm.start(people)
    rings = np.full(people, -1)
    for t in range(answers):
        log_odds = rng.normal(-0.5, 1.2, people)
        p, y = scipy.special.expit(log_odds), (rng.random(people) < scipy.special.expit(log_odds + shift)).astype(float)
        ended = (y == 0) & (rng.random(people) < withdrawn) if withdrawn else np.zeros(people, bool)
        state = np.where(ended[:, None], alarm.withdraw(state, p, 0.4), alarm.update(state, p, y, 0.4))
        rings = np.where((rings < 0) & (alarm.log_martingale(state) >= np.log(1 / ALPHA)), t + 1, rings)
    return rings


def shift_table(people: int, answers: int = 300) -> Table:
    """False alarms and delays of simulated people."""
    columns = (
        Column("alarms", "Share of people whose alarm ever rings.", "%"),
        Column("median delay", "Answers until it rings, over all people."),
        Column("nine tenths", "Answers until nine tenths of the alarms have rung."),
    )
    few = max(people // 10, 1)
    replays = {
        "none (null replays)": replay(0.0, people, answers=answers),
        "none, half of the refusals withdrawn": replay(0.0, people, answers=answers, withdrawn=0.5),
        **{f"{shift:+g}": replay(shift, few, answers=answers) for shift in SHIFTS},
    }
    rows = []
    for name, rings in replays.items():
        late = np.where(rings < 0, np.inf, rings)
        quantiles = (np.quantile(late, q, method="higher") for q in (0.5, 0.9))
        cells = (DASH if np.isinf(quantile) else f"{quantile:.0f}" for quantile in quantiles)
        rows.append(Row(name, (percent(float((rings > 0).mean())), *cells), strong=name.startswith("none")))
    note = (
        f"{people} null replays and a tenth of that per shift, {answers} answers each, alpha = {ALPHA:g} at any time."
    )
    return Table(
        "Alarms of simulated people", "shift of the log-odds", columns, (Section("", tuple(rows)),), note, "null"
    )


def forecasts(
    person: Int[np.ndarray, " n"], fitted: Float[np.ndarray, " n"], accepted: Float[np.ndarray, " n"]
) -> Mapping[str, Float[np.ndarray, " n"]]:
    """Two forecasts of each answer, before it is seen, from other people's answers and the person's own past.

    Answers are sorted by time within people. Everything is fitted on other people's `fitted`, 0 or 1; the answers that
    are forecast, and seen afterwards, are `accepted`.
    """
    rate, layer = np.empty(len(person)), np.empty(len(person))
    fold = np.random.default_rng(0).permutation(int(person.max()) + 1)[person] % FOLDS
    for k in np.unique(fold):
        held = fold == k
        share = float(np.clip(fitted[~held].mean(), 0.01, 0.99))
        log_odds = np.full(len(person), scipy.special.logit(share))
        rate[held] = share
        # All folds have the same shapes, so that the scan over people is compiled once.
        population = fit_population(log_odds, fitted, person, counted=~held, calibrated=True)
        layer[held] = scipy.special.expit(prequential(log_odds, accepted, person, population).log_odds[held])
    return {RATE: rate, LAYER: layer}


def with_changed_mood(
    person: Int[np.ndarray, " n"], accepted: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " people"]]:
    """The answers after a change of mood in the middle of each person's, and the number of unchanged ones of each."""
    counts = np.bincount(person)
    order = np.argsort(person, kind="stable")
    place = np.empty(len(person), np.int64)
    place[order] = np.arange(len(person)) - np.repeat(np.cumsum(counts) - counts, counts)
    return turned(accepted, place >= counts[person] // 2), counts // 2


def log_table(log: AcceptanceLog, name: str) -> Table:
    """Alarms on the log as it is, and after the change of mood."""
    rows = log.order[log.logged[log.order]]
    person = np.unique(log.person[rows], return_inverse=True)[1]
    order, answers = np.argsort(log.time[rows], kind="stable"), log.accepted[rows]
    people, code = int(person.max()) + 1, person[order]
    columns = (
        Column("log loss", "Mean negative log-likelihood of the forecasts, in nats."),
        Column("people alarmed", "People whose own alarm rings, at alpha divided by the number of people."),
        Column("median delay", "Answers of the person from the start, or from the change, until the alarm."),
        Column("product rings", "Answers of everybody until the product of the martingales rings."),
    )
    moody, unchanged = with_changed_mood(person, answers)
    sections = []
    for title, y, changed in (
        ("the log as it is", answers, np.zeros_like(unchanged)),
        ("after a change of mood", moody, unchanged),
    ):
        shown = []
        for kind, p in forecasts(person, answers, y).items():
            log_m = alarm.along(p[order], y[order], code, 0.5)
            after = np.array([int(alarm.first_alarm(log_m[code == each], ALPHA, people)) for each in range(people)])
            late = (after > 0) & (after > changed)
            delay = number(float(np.median((after - changed)[late])), 0) if late.any() else DASH
            loss = -np.mean(scipy.special.xlogy(y, p) + scipy.special.xlog1py(1 - y, -p))
            alarmed = f"{(after > 0).sum()} of {people}"
            shown.append(Row(kind, (number(float(loss), 3), alarmed, delay, product_rings(log_m, code))))
        sections.append(Section(title, tuple(shown)))
    note = (
        f"{len(rows)} answers of {people} people, alpha = {ALPHA:g}; a forecast is made from other people "
        "and the person's past. A product that never rings is a dash."
    )
    return Table(f"Alarms on {name}", "forecast", columns, tuple(sections), note)


def product_rings(log_m: np.ndarray, code: np.ndarray) -> str:
    """Answers of everybody until the product of the people's martingales rings."""
    rings = int(alarm.first_alarm(alarm.pooled_along(log_m, code, independent=True), ALPHA))
    return DASH if rings < 0 else str(rings)
