"""A person's own rate on top of any score (docs/maths.md, section 13).

    logit p_t = a * logit(s_t) + b + u_i,   u_i ~ N(0, tau^2) for a new person, drifting by N(0, q) per answer

A person is two numbers, the mean m and variance v of u_i. Each answer changes them by one Laplace step, in constant
time. `believe`, `predict` and `update` are elementwise and serve a single answer as well as arrays; `prequential` runs
them over a whole log, where every prediction is made before its answer is seen.

A log is cut into lanes, each a sequence of whole people, and all lanes advance together in one `lax.scan`. The number
of lanes is chosen so that they hold at most twice as many places as the log has rows, also when one person has most of
the answers. Everything over logs is computed in float64: the fit adds up the loss of up to millions of answers.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Bool, Float, Float64, Int, Int64, Real, Shaped

from prism_jax.decision.arrays import Floats, Reals, sigmoid

MOST_LANES = 4096
"""Largest number of lanes; more would not make a scan faster."""
_BOUNDS = ((-5.0, 5.0), (-10.0, 10.0), (np.log(0.01), np.log(5.0)), (np.log(1e-7), np.log(0.5)))
"""Ranges of a, b, log tau and log q in the fit."""
_START = (1.0, 0.0, np.log(0.6), np.log(0.01))


class Population(NamedTuple):
    """What a person shares with everybody else.

    Attributes:
      scale: a, by which the log-odds of the score are multiplied.
      bias: b, which is added to them.
      spread: tau > 0, the standard deviation of the people's own rates, in log-odds.
      drift: q >= 0, the variance by which a person's rate moves from one answer to the next.
    """

    scale: float
    bias: float
    spread: float
    drift: float


class Belief(NamedTuple):
    """What is known of a person's own rate u_i.

    Attributes:
      mean: m, in log-odds; 0 is the population's.
      variance: v; tau^2 for a person who never answered.
    """

    mean: Any
    variance: Any


def believe(population: Population) -> Belief:
    """The belief about a person who never answered."""
    return Belief(0.0, population.spread**2)


def predict(belief: Belief, log_odds: Reals, population: Population) -> Floats:
    """Log-odds of acceptance, with the doubt about the person's rate averaged out.

    The average of a sigmoid over N(m, v) is close to the sigmoid of its log-odds divided by sqrt(1 + pi v / 8)
    (MacKay 1992).

    Args:
      belief: What is known of the person.
      log_odds: logit(s_t) of the score.
      population: The parameters.
    """
    own = population.scale * log_odds + population.bias + belief.mean
    return own / (1 + (np.pi / 8) * belief.variance) ** 0.5


def update(belief: Belief, log_odds: Reals, accepted: Reals, population: Population) -> Belief:
    """The belief after an answer, including the drift until the next one.

    One Newton step from m on the log posterior, with the curvature at m: v <- 1 / (1/v + p (1 - p)) and
    m <- m + v (y - p), then v <- v + q.

    Args:
      belief: What was known before the answer.
      log_odds: logit(s_t) of the score of the offer.
      accepted: 1 if the offer was accepted, 0 if not.
      population: The parameters.
    """
    p = sigmoid(population.scale * log_odds + population.bias + belief.mean)
    variance = belief.variance / (1 + belief.variance * p * (1 - p))
    return Belief(belief.mean + variance * (accepted - p), variance + population.drift)


class Lanes(NamedTuple):
    """Where the rows of a log stand in its lanes.

    Attributes:
      step, lane: Place of each row.
      shape: Number of steps and of lanes.
      first: True where a person begins.
    """

    step: Int64[np.ndarray, " rows"]
    lane: Int64[np.ndarray, " rows"]
    shape: tuple[int, int]
    first: Bool[np.ndarray, "steps lanes"]

    def spread(self, values: Shaped[np.ndarray, " rows"]) -> Float64[np.ndarray, "steps lanes"]:
        """One value per row, put into the lanes; empty places hold 0."""
        out = np.zeros(self.shape)
        out[self.step, self.lane] = values
        return out


def lanes(person: Int[np.ndarray, " rows"]) -> Lanes:
    """Cuts a log into lanes.

    Args:
      person: Person of each row; rows of one person stand in the order in which they happened.

    Raises:
      ValueError: for an empty log.
    """
    rows = len(person)
    if not rows:
        raise ValueError("person: found no rows, expected at least one")
    order = np.argsort(person, kind="stable")
    begins = np.flatnonzero(np.diff(person[order], prepend=person[order[0]] - 1))
    counts = np.diff(begins, append=rows)
    number = int(np.clip(rows // counts.max(), 1, MOST_LANES))
    # A lane takes the people who begin in its share of the rows, so it holds at most rows / number + the longest.
    lane_of_person = begins * number // rows
    lane = np.repeat(lane_of_person, counts)
    lane_begins = np.searchsorted(lane_of_person, np.arange(number))
    starts = np.append(begins, rows)[lane_begins]
    step = np.arange(rows) - starts[lane]
    first = np.zeros((int(step.max()) + 1, number), bool)
    first[step[begins], lane_of_person] = True
    back = np.empty(rows, np.int64)
    back[order] = np.arange(rows)
    return Lanes(step[back], lane[back], first.shape, first)


class Run(NamedTuple):
    """A log, predicted one row after another.

    Attributes:
      log_odds: Predicted log-odds of acceptance, before the row's answer was seen.
      belief: What was known of the person at that moment.
    """

    log_odds: Float64[np.ndarray, " rows"]
    belief: Belief


def prequential(
    log_odds: Float[np.ndarray, " rows"],
    accepted: Real[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    population: Population,
    answered: Bool[np.ndarray, " rows"] | None = None,
    places: Lanes | None = None,
) -> Run:
    """Predicts every row from the earlier answers of its person, then sees its answer.

    Args:
      log_odds: logit(s_t) of the score of each offer.
      accepted: 1 or 0; anything where `answered` is false.
      person: Person of each row; rows of one person stand in the order in which they happened.
      population: The parameters.
      answered: Rows whose answer is seen; None is all.
      places: `lanes(person)`, where it is known already.

    Raises:
      ValueError: for an empty log.
    """
    places = places or lanes(person)
    seen = np.ones(len(person), bool) if answered is None else answered
    with jax.enable_x64(True):
        out = _scan(
            jnp.asarray(population, jnp.float64),
            places.spread(log_odds),
            places.spread(np.where(seen, accepted, 0.0)),
            places.spread(seen),
            places.first,
        )
        predicted, mean, variance = (np.asarray(part)[places.step, places.lane] for part in out)
    return Run(predicted, Belief(mean, variance))


def fit_population(
    log_odds: Float[np.ndarray, " rows"],
    accepted: Real[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    counted: Bool[np.ndarray, " rows"] | None = None,
    answered: Bool[np.ndarray, " rows"] | None = None,
    places: Lanes | None = None,
) -> Population:
    """The parameters of the highest prequential likelihood, by L-BFGS-B.

    Args:
      log_odds: As in `prequential`; of people whose answers did not fit the score.
      accepted: As in `prequential`.
      person: As in `prequential`.
      counted: Rows whose prediction counts; None is all. Leave out all rows of a person to leave out the person.
      answered: As in `prequential`.
      places: As in `prequential`.

    Raises:
      ValueError: for an empty log, or no row that counts and has an answer.
    """
    places = places or lanes(person)
    seen = np.ones(len(person), bool) if answered is None else answered
    weight = seen if counted is None else seen & counted
    if not weight.any():
        raise ValueError("counted: found no row with an answer, expected some")
    labels = np.where(seen, accepted, 0.0)
    arrays = [places.spread(values) for values in (log_odds, labels, seen, weight / weight.sum())]

    def loss(theta: Float64[np.ndarray, " 4"]) -> tuple[float, Float64[np.ndarray, " 4"]]:
        with jax.enable_x64(True):
            gradient, value = _gradient(jnp.asarray(theta, jnp.float64), *arrays, places.first)
            return float(value), np.asarray(gradient, np.float64)

    found = scipy.optimize.minimize(loss, _START, jac=True, method="L-BFGS-B", bounds=_BOUNDS)
    scale, bias, log_spread, log_drift = map(float, found.x)
    return Population(scale, bias, float(np.exp(log_spread)), float(np.exp(log_drift)))


def _run(theta: Any, log_odds: Any, accepted: Any, seen: Any, first: Any) -> tuple[Any, Any, Any]:
    """Predicted log-odds, means and variances, all [steps, lanes]."""
    population = Population(*theta)
    cold = believe(population)

    def step(belief: Belief, row: Any) -> tuple[Belief, Any]:
        z, y, answered, begins = row
        belief = Belief(*(jnp.where(begins, new, old) for new, old in zip(cold, belief, strict=True)))
        after = update(belief, z, y, population)
        kept = Belief(*(jnp.where(answered > 0, new, old) for new, old in zip(after, belief, strict=True)))
        return kept, (predict(belief, z, population), *belief)

    start = Belief(jnp.zeros(first.shape[1]), jnp.full(first.shape[1], cold.variance))
    return jax.lax.scan(step, start, (log_odds, accepted, seen, first))[1]


_scan = jax.jit(_run)


@functools.partial(jax.jit)
@functools.partial(jax.jacfwd, has_aux=True)
def _gradient(theta: Any, log_odds: Any, accepted: Any, seen: Any, weight: Any, first: Any) -> Any:
    """Gradient and value of the weighted negative log-likelihood; forward mode keeps no intermediate of the scan."""
    natural = (theta[0], theta[1], jnp.exp(theta[2]), jnp.exp(theta[3]))
    predicted, _, _ = _run(natural, log_odds, accepted, seen, first)
    value = jnp.sum(weight * (jnp.logaddexp(0.0, predicted) - accepted * predicted))
    return value, value
