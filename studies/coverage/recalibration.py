"""What does it help if the population's map follows everybody's answers while the person layer follows each person?

Answers of all people come in the order of time, and every one is predicted before it is seen: by the person layer, and
by the person layer on a population that is recalibrated (`prism_jax.people.recalibration`). Simulated people come and
go; of a log, the population is fitted on the first half of the answers. Both are shown as they are and after a change
of mood (docs/personal_agent.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy
from jaxtyping import Float64

from prism_jax.decision import alarm
from prism_jax.decision.person import Belief, Population, believe, predict, update
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.people import recalibration
from prism_jax.people.layer import fit_population
from prism_jax.report.numbers import DASH, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units
from studies.coverage.alarms import product_rings
from studies.coverage.drawing import SIMULATED, Answers, simulated_answers, turned

LAYER, BOTH = "person layer", "person layer, recalibrated"
SHIFTS = {"no change": 0.0, "log-odds -0.5": -0.5, "log-odds -1": -1.0, "log-odds +1": 1.0}
"""What a change of mood adds to everybody's log-odds."""


def forecast(answers: Answers, population: Population) -> Mapping[str, Float64[np.ndarray, " n"]]:
    """Log-odds of every answer before it is seen, by both forecasts."""
    cold = believe(population)
    beliefs: dict[str, dict[int, Belief]] = {LAYER: {}, BOTH: {}}
    state = recalibration.start(population)
    out = {name: np.empty(len(answers.person)) for name in beliefs}
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


def table(title: str, sections: Mapping[str, tuple[Answers, Population]]) -> Table:
    """Loss and alarm of both forecasts, over the answers that are counted."""
    columns = (
        Column("log loss", "Mean negative log-likelihood, in nats."),
        Column("minus that of the layer", "Difference from the person layer, with a 95 % interval over people."),
        Column("product rings after", "Answers until the product of the people's alarms rings, at alpha = 0.05."),
    )
    shown, people = [], []
    for name, (answers, population) in sections.items():
        at = answers.counted
        y, code = answers.accepted[at], np.unique(answers.person[at], return_inverse=True)[1]
        log_odds = {kind: z[at] for kind, z in forecast(answers, population).items()}
        loss = {kind: np.logaddexp(0.0, z) - y * z for kind, z in log_odds.items()}
        gain = show_estimate(mean_interval(loss[BOTH] - loss[LAYER], code, resamples=2000), sign=True)
        rows = []
        for kind, z in log_odds.items():
            rings = product_rings(alarm.along(scipy.special.expit(z), y, code, 0.5), code)
            rows.append(Row(kind, (f"{loss[kind].mean():.4f}", gain if kind == BOTH else DASH, rings)))
        people.append(int(code.max()) + 1)
        shown.append(Section(f"{name}, {people[-1]} people", tuple(rows)))
    over = over_units(min(people), "people", most=max(people))
    note = f"The second half of the answers. {over}, in brackets. Negative differences are gains."
    return Table(title, "forecast", columns, tuple(shown), note)


def simulated_sections() -> dict[str, tuple[Answers, Population]]:
    """Simulated answers under each change of mood, with the true population of before."""
    return {name: (simulated_answers(shift), SIMULATED) for name, shift in SHIFTS.items()}


def log_sections(log: AcceptanceLog) -> dict[str, tuple[Answers, Population]]:
    """A log as it is, and after a change of mood in its middle; rate and population are fitted on the first half."""
    rows = np.flatnonzero(log.logged)
    rows = rows[np.argsort(log.time[rows], kind="stable")]
    person, y = log.person[rows].astype(np.int64), log.accepted[rows]
    later = np.arange(len(rows)) >= len(rows) // 2
    if len(np.unique(y[~later])) < 2:
        raise ValueError("accepted: found one kind of answer in the first half of the log, expected both")
    z = np.full(len(rows), scipy.special.logit(y[~later].mean()))
    population = fit_population(z[~later], y[~later], person[~later], calibrated=True)
    as_it_is = Answers(person, z, y, later)
    return {
        "the log as it is": (as_it_is, population),
        "after a change of mood": (as_it_is._replace(accepted=turned(y, later)), population),
    }
