"""How often and how soon the alarm for drift rings: on simulated people, and on a log of offers.

    python -m prism_jax experiments alarms
    python -m prism_jax experiments alarms --log=FILE --columns=person=..,time=..,accepted=..

Without a log: false alarms over null replays, and the delay after a shift of the log-odds. With a log, two forecasts
are watched, each made from other people and the person's past: the acceptance rate of the others, and the person layer
on top of it. Then the mood of everybody changes in the middle of their answers, half of the acceptances become
rejections, and nothing is fitted anew. docs/personal_agent.md shows what it prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy
from absl import flags
from jaxtyping import Float, Int

from prism_jax.decision import alarm
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.logs import AcceptanceLog, read_log
from prism_jax.people.layer import fit_population, prequential
from prism_jax.report.numbers import DASH, number, percent
from prism_jax.report.table import Column, Row, Section, Table

SHIFTS = (0.25, 0.5, 1.0, 2.0, -1.0)
FOLDS = 5
RATE, LAYER = "rate of the others", "person layer"


def replay(
    *, shift: float, people: int, answers: int, change: int, alpha: float, seed: int, withdrawn: float = 0.0
) -> Int[np.ndarray, " people"]:
    """The number of offers after which the alarm of each simulated person first rings, -1 where it never does.

    Probabilities are calibrated for `change` answers; then `shift` is added to the true log-odds, 0 for a null replay.
    `alpha` is the probability of a false alarm. `withdrawn` is the share of the refusals that are never heard of,
    because they end the stream.
    """
    rng = np.random.default_rng(seed)
    state: Any = alarm.start(people)
    rings = np.full(people, -1)
    for t in range(answers):
        log_odds = rng.normal(-0.5, 1.2, people)
        truth = scipy.special.expit(log_odds + (shift if t >= change else 0.0))
        p, y = scipy.special.expit(log_odds), (rng.random(people) < truth).astype(float)
        ended = (y == 0) & (rng.random(people) < withdrawn) if withdrawn else np.zeros(people, bool)
        state = np.where(ended[:, None], alarm.withdraw(state, p, 0.4), alarm.update(state, p, y, 0.4))
        rings = np.where((rings < 0) & (alarm.log_martingale(state) >= np.log(1 / alpha)), t + 1, rings)
    return rings


def shift_table(*, people: int, answers: int, alpha: float) -> Table:
    """False alarms and delays of simulated people."""
    columns = (
        Column("alarms", "Share of people whose alarm ever rings.", "%"),
        Column("median delay", "Answers until it rings, over all people."),
        Column("nine tenths", "Answers until nine tenths of the alarms have rung."),
    )
    rows = []
    for shift, withdrawn in ((0.0, 0.0), (0.0, 0.5), *((shift, 0.0) for shift in SHIFTS)):
        many = people if shift == 0 else max(people // 10, 1)
        rings = replay(shift=shift, people=many, answers=answers, change=0, alpha=alpha, seed=0, withdrawn=withdrawn)
        late = np.where(rings < 0, np.inf, rings)
        quantiles = (np.quantile(late, q, method="higher") for q in (0.5, 0.9))
        cells = (DASH if np.isinf(quantile) else f"{quantile:.0f}" for quantile in quantiles)
        name = "none (null replays)" if shift == 0 else f"{shift:+g}"
        name = "none, half of the refusals withdrawn" if withdrawn else name
        rows.append(Row(name, (percent(float((rings > 0).mean())), *cells), strong=shift == 0))
    note = (
        f"{people} null replays and a tenth of that per shift, {answers} answers each, alpha = {alpha:g} at any time."
    )
    return Table(
        "Alarms of simulated people", "shift of the log-odds", columns, (Section("", tuple(rows)),), note, "null"
    )


class Watched(NamedTuple):
    """The alarms of one forecast on one log."""

    people: int
    # answers of each person until their own alarm rings at alpha / people, -1 where it never does
    after: Int[np.ndarray, " people"]
    changed: Int[np.ndarray, " people"]  # answers of each person before the change of mood; 0 without one
    pooled: int  # answers of everybody until the weighted mean of the martingales rings at alpha; -1 if it never does
    product: int  # the same of their product
    log_loss: float  # mean negative log-likelihood of the forecasts


def forecasts(
    person: Int[np.ndarray, " n"], fitted: Float[np.ndarray, " n"], accepted: Float[np.ndarray, " n"]
) -> Mapping[str, Float[np.ndarray, " n"]]:
    """Two forecasts of each answer, before it is seen, from other people's answers and the person's own past.

    Answers are sorted by time within people. Everything is fitted on other people's `fitted`, 0 or 1; the answers that
    are forecast, and seen afterwards, are `accepted`.
    """
    rate, layer = np.empty(len(person)), np.empty(len(person))
    fold = np.random.default_rng(0).permutation(int(person.max()) + 1)[person] % FOLDS
    for k in range(FOLDS):
        held = fold == k
        if not held.any():
            continue
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
    """The answers, half of whose acceptances become rejections from the middle of each person's answers on.

    Beside them, the number of unchanged answers of each person.
    """
    counts = np.bincount(person)
    order = np.argsort(person, kind="stable")
    place = np.empty(len(person), np.int64)
    place[order] = np.arange(len(person)) - np.repeat(np.cumsum(counts) - counts, counts)
    turned = (place >= counts[person] // 2) & (np.random.default_rng(0).random(len(person)) < 0.5)
    return np.where(turned, 0.0, accepted), counts // 2


def watch(
    person: Int[np.ndarray, " n"],
    time: Float[np.ndarray, " n"],
    accepted: Float[np.ndarray, " n"],
    p: Float[np.ndarray, " n"],
    *,
    alpha: float,
    changed: Int[np.ndarray, " people"] | None = None,
) -> Watched:
    """Watches one forecast, person by person and pooled in the order of time."""
    order = np.argsort(time, kind="stable")
    log_m = alarm.along(p[order], accepted[order], person[order], 0.5)
    people = int(person.max()) + 1
    after = np.array([int(alarm.first_alarm(log_m[person[order] == code], alpha, people)) for code in range(people)])
    mean, product = (
        int(alarm.first_alarm(alarm.pooled_along(log_m, person[order], independent=independent), alpha))
        for independent in (False, True)
    )
    loss = -np.mean(scipy.special.xlogy(accepted, p) + scipy.special.xlog1py(1 - accepted, -p))
    changed = np.zeros(people, np.int64) if changed is None else changed
    return Watched(people, after, changed, mean, product, float(loss))


def log_table(log: AcceptanceLog, name: str, *, alpha: float) -> Table:
    """Alarms on the log as it is, and after the change of mood."""
    rows = log.order[log.logged[log.order]]
    person = np.unique(log.person[rows], return_inverse=True)[1]
    time, answers = log.time[rows], log.accepted[rows]
    moody, unchanged = with_changed_mood(person, answers)
    columns = (
        Column("log loss", "Mean negative log-likelihood of the forecasts, in nats."),
        Column("people alarmed", "People whose own alarm rings, at alpha divided by the number of people."),
        Column("before change", "Of these, before the change of mood."),
        Column("median delay", "Answers of the person from the start, or from the change, until the alarm."),
        Column("mean rings", "Answers of everybody until the weighted mean of the martingales rings."),
        Column("product rings", "The same of their product."),
    )
    sections = []
    for title, y, changed in (("the log as it is", answers, None), ("after a change of mood", moody, unchanged)):
        by_name = forecasts(person, answers, y)
        alarms = {name: watch(person, time, y, p, alpha=alpha, changed=changed) for name, p in by_name.items()}
        sections.append(Section(title, tuple(Row(name, _cells(watched)) for name, watched in alarms.items())))
    note = (
        f"{len(rows)} answers of {person.max() + 1} people, alpha = {alpha:g}; a forecast is made from other people "
        "and the person's past. A mean or product that never rings is a dash."
    )
    return Table(f"Alarms on {name}", "forecast", columns, tuple(sections), note)


def _cells(watched: Watched) -> tuple[str, ...]:
    rung = watched.after > 0
    early = rung & (watched.changed > 0) & (watched.after <= watched.changed)
    late = rung & ~early
    delay = number(float(np.median((watched.after - watched.changed)[late])), 0) if late.any() else DASH
    before = str(int(early.sum())) if watched.changed.any() else DASH
    pooled = (DASH if count < 0 else str(count) for count in (watched.pooled, watched.product))
    return (number(watched.log_loss, 3), f"{rung.sum()} of {watched.people}", before, delay, *pooled)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("log", None, "Acceptance log, .csv or .parquet; without it, people are simulated.")
    flags.DEFINE_list("columns", [], "Its columns: person=NAME,time=NAME,accepted=NAME.")
    flags.DEFINE_float("alpha", 0.05, "Probability of a false alarm at any time.", 1e-6, 0.5)
    flags.DEFINE_integer("people", 10_000, "Number of simulated people without a change.", 10)
    flags.DEFINE_integer("answers", 300, "Answers of each simulated person.", 1)


def log_of_flags(*of_simulation: str) -> AcceptanceLog | None:
    """The log of --log, None without one; ValueError for a flag that the other of the two needs."""
    options = flags.FLAGS
    for name in ("columns",) if options.log is None else of_simulation:
        if options[name].present:
            raise ValueError(
                f"--{name}: found it {'without' if options.log is None else 'with'} --log, expected the other"
            )
    return None if options.log is None else read_log(options.log, parse_columns(options.columns))


def main() -> Iterable[Table]:
    """Rings the alarms of simulated people, or of a log."""
    options = flags.FLAGS
    log = log_of_flags("people", "answers")
    if log is None:
        return [shift_table(people=options.people, answers=options.answers, alpha=options.alpha)]
    return [log_table(log, options.log.rpartition("/")[2], alpha=options.alpha)]
