"""What does it help if the population's map follows everybody's answers while the person layer follows each person?

    python -m prism_jax experiments recalibration
    python -m prism_jax experiments recalibration --log=FILE --columns=person=..,time=..,accepted=..[,score=..]

Answers of all people come in the order of time, and every one is predicted before it is seen: by the population as it
was fitted, by the person layer, and by the person layer on a population that is recalibrated
(`prism_jax.people.recalibration`). Without a log, people are simulated who come and go. With one, the population is
fitted on the first half of the answers. Both are shown as they are and after a change of mood. The results are in
docs/personal_agent.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import scipy
from absl import flags
from jaxtyping import Float64, Int

from prism_jax.decision import alarm
from prism_jax.decision.calibration import fit_platt
from prism_jax.decision.person import Belief, Population, believe, predict, update
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.experiments.alarms import log_of_flags
from prism_jax.people import recalibration
from prism_jax.people.layer import fit_population
from prism_jax.report.numbers import DASH, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units
from prism_jax.runtime.command import refuse_empty

FITTED, LAYER, BOTH = "population as fitted", "person layer", "person layer, recalibrated"
SIMULATED = Population(scale=1.0, bias=0.0, spread=0.7, drift=0.005)
SHIFTS = (0.0, -0.5, -1.0, 1.0)
"""What a change of mood adds to everybody's log-odds."""


class Answers(NamedTuple):
    """Answers of all people in the order of time."""

    person: Int[np.ndarray, " n"]  # code of the person
    log_odds: Float64[np.ndarray, " n"]  # logit(s_t) of the score of the offer
    accepted: Float64[np.ndarray, " n"]  # 1 or 0
    counted: np.ndarray  # the answers that are measured


def simulate(*, shift: float, people: int, answers: int, seed: int) -> Answers:
    """Draws people who come one after the other, and whose mood changes together after half of all answers.

    `shift` is what the change adds to the log-odds; 0 is no change. `answers` is the number for each person, about ten
    of whom are there at a time.
    """
    rng = np.random.default_rng(seed)
    begins = np.sort(rng.uniform(0, people / 10 * answers, people))
    time = begins[:, None] + np.sort(rng.uniform(0, answers, (people, answers)), axis=1)
    own = rng.normal(0, SIMULATED.spread, (people, 1)) + np.cumsum(
        rng.normal(0, SIMULATED.drift**0.5, (people, answers)), axis=1
    )
    order = np.argsort(time.ravel())
    person = np.repeat(np.arange(people), answers)[order]
    log_odds = rng.normal(-0.3, 1.0, len(person))
    later = np.arange(len(person)) >= len(person) // 2
    truth = scipy.special.expit(log_odds + own.ravel()[order] + shift * later)
    return Answers(person, log_odds, (rng.random(len(person)) < truth).astype(float), later)


def forecast(answers: Answers, population: Population) -> Mapping[str, Float64[np.ndarray, " n"]]:
    """Log-odds of every answer before it is seen, by each of the three forecasts."""
    cold = believe(population)
    beliefs: dict[str, dict[int, Belief]] = {LAYER: {}, BOTH: {}}
    state = recalibration.start(population)
    out = {name: np.empty(len(answers.person)) for name in (FITTED, LAYER, BOTH)}
    out[FITTED] = np.asarray(predict(cold, answers.log_odds, population))
    rows = zip(answers.person.tolist(), answers.log_odds.tolist(), answers.accepted.tolist(), strict=True)
    for row, (person, z, y) in enumerate(rows):
        now = recalibration.moved(population, state)
        for name, current in ((LAYER, population), (BOTH, now)):
            belief = beliefs[name].get(person, cold)
            out[name][row] = predict(belief, z, current)
            after = update(belief, z, y, current)
            beliefs[name][person] = Belief(float(after.mean), float(after.variance))
            if name == BOTH:
                state = recalibration.Recalibration(*map(float, recalibration.update(state, z, belief, y)))
    return out


def table(title: str, sections: Mapping[str, tuple[Answers, Population]], resamples: int) -> Table:
    """Loss, error and alarm of the three forecasts, over the answers that are counted."""
    columns = (
        Column("log loss", "Mean negative log-likelihood, in nats."),
        Column("minus that of the layer", "Difference from the person layer, with a 95 % interval over people."),
        Column("Brier", "Mean squared error."),
        Column("stated minus accepted", "Mean probability minus share of accepted offers."),
        Column("product rings after", "Answers until the product of the people's alarms rings, at alpha = 0.05."),
    )
    shown_sections, people = [], []
    for name, (answers, population) in sections.items():
        forecasts = forecast(answers, population)
        loss = {kind: np.logaddexp(0.0, z) - answers.accepted * z for kind, z in forecasts.items()}
        rows = []
        for kind, z in forecasts.items():
            at = answers.counted
            p, y = scipy.special.expit(z[at]), answers.accepted[at]
            gain = DASH
            if kind != LAYER:
                change = mean_interval(loss[kind][at] - loss[LAYER][at], answers.person[at], resamples=resamples)
                gain = show_estimate(change, sign=True)
            cells = (
                f"{loss[kind][at].mean():.4f}",
                gain,
                f"{np.mean((p - y) ** 2):.4f}",
                f"{np.mean(p - y):+.3f}".replace("-", "−"),
                _rings(p, y, answers.person[at]),
            )
            rows.append(Row(kind, cells, strong=kind == BOTH))
        people.append(len(np.unique(answers.person[answers.counted])))
        shown_sections.append(Section(f"{name}, {people[-1]} people", tuple(rows)))
    over = over_units(min(people), "people", most=max(people))
    note = f"The second half of the answers. {over}, in brackets. Negative differences are gains."
    return Table(title, "forecast", columns, tuple(shown_sections), note)


def _rings(p: np.ndarray, y: np.ndarray, person: np.ndarray) -> str:
    code = np.unique(person, return_inverse=True)[1]
    log_m = alarm.along(p, y, code, 0.5)
    rings = int(alarm.first_alarm(alarm.pooled_along(log_m, code, independent=True), 0.05))
    return DASH if rings < 0 else f"{rings:,}"


def simulated_sections(people: int, answers: int, seed: int) -> dict[str, tuple[Answers, Population]]:
    """Simulated answers under each change of mood, with the true population of before."""
    return {
        "no change" if not shift else f"log-odds {shift:+g}": (
            simulate(shift=shift, people=people, answers=answers, seed=seed),
            SIMULATED,
        )
        for shift in SHIFTS
    }


def log_sections(log: AcceptanceLog) -> dict[str, tuple[Answers, Population]]:
    """A log as it is, and with half of the acceptances after its middle turned into rejections.

    Everything is fitted on the first half of the answers: Platt's map of the score (the rate, where there is none), and
    the population.
    """
    rows = np.flatnonzero(log.logged)
    rows = rows[np.argsort(log.time[rows], kind="stable")]
    person, y = log.person[rows].astype(np.int64), log.accepted[rows]
    z = np.zeros(len(rows))
    if log.score is not None:
        if not log.score_is_probability:
            raise ValueError("score: found values outside [0, 1], expected a probability, or no score")
        z = scipy.special.logit(np.clip(np.nan_to_num(log.score[rows], nan=0.5), 1e-6, 1 - 1e-6))
    later = np.arange(len(rows)) >= len(rows) // 2
    if len(np.unique(y[~later])) < 2:
        raise ValueError("accepted: found one kind of answer in the first half of the log, expected both")
    if log.score is None:
        z = np.full(len(rows), scipy.special.logit(y[~later].mean()))
    else:
        platt = fit_platt(scipy.special.expit(z[~later]), y[~later])
        z = platt.of_log_odds(z)
    population = fit_population(z[~later], y[~later], person[~later], calibrated=True)
    turned = later & (np.random.default_rng(0).random(len(rows)) < 0.5)
    return {
        "the log as it is": (Answers(person, z, y, later), population),
        "after a change of mood": (Answers(person, z, np.where(turned, 0.0, y), later), population),
    }


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("log", None, "Acceptance log, .csv or .parquet; without it, people are simulated.")
    flags.DEFINE_list("columns", [], "Its columns: person=NAME,time=NAME,accepted=NAME[,score=NAME].")
    flags.DEFINE_integer("people", 400, "Number of simulated people.", 20)
    flags.DEFINE_integer("answers", 15, "Answers of each simulated person.", 1)
    flags.DEFINE_integer("seed", 0, "Seed of the simulation.", 0)
    flags.DEFINE_integer("resamples", 2000, "Bootstrap resamples of whole people.", 100)
    refuse_empty("log")


def main() -> Iterable[Table]:
    """Recalibrates simulated people, or those of a log."""
    options = flags.FLAGS
    log = log_of_flags("people", "answers", "seed")
    if log is None:
        sections = simulated_sections(options.people, options.answers, options.seed)
        return [table("Simulated people", sections, options.resamples)]
    return [table(options.log.rpartition("/")[2], log_sections(log), options.resamples)]
