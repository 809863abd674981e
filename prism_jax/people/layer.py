"""A person's own rate on top of any score (docs/maths.md, section 13).

    logit p_t = a * logit(s_t) + b + u_i,   u_i ~ N(0, tau^2) for a new person, drifting by N(0, q) per answer

A person is two numbers, the mean m and variance v of u_i, which each answer changes by one Laplace step, in constant
time. `believe`, `predict` and `update` are elementwise and serve a single answer as well as arrays. Everything over
logs is computed in float64: the fit adds up the loss of up to millions of answers.
"""

from __future__ import annotations

import concurrent.futures
import functools
import queue
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Bool, Float, Float64, Int, Real

from prism_jax.decision.arrays import Floats, Reals, sigmoid
from prism_jax.people.lanes import Lanes, lanes

MOST_OPTIMISM, OPTIMISM_SHARE = 0.5, 0.25


def optimism(cost_ratio: float) -> float:
    """Number of standard deviations of a person's rate that the gate adds to the log-odds of acceptance.

    Only an offer is answered, so a person who is thought to decline would never get the chance to say otherwise. Where
    silence is cheap a gate errs on that side, and an offer now and then pays for itself. With r = C_FN / C_FA it is
    min(0.5, 0.25 / r) up to r = 1, and 0 above: there the gate offers often anyway. 0 for r = 0, which never offers.
    """
    return min(MOST_OPTIMISM, OPTIMISM_SHARE / cost_ratio) if 0 < cost_ratio <= 1 else 0.0


_BOUNDS = ((-5.0, 5.0), (-10.0, 10.0), (np.log(0.01), np.log(5.0)), (np.log(1e-7), np.log(0.5)))
"""Ranges of a, b, log tau and log q in the fit."""
_START = (1.0, 0.0, np.log(0.6), np.log(0.01))


class Population(NamedTuple):
    """What a person shares with everybody else."""

    scale: float  # a, by which the log-odds of the score are multiplied
    bias: float  # b, which is added to them
    spread: float  # tau > 0, the standard deviation of the people's own rates, in log-odds
    drift: float  # q >= 0, the variance by which a person's rate moves from one answer to the next


class Belief(NamedTuple):
    """What is known of a person's own rate u_i."""

    mean: Any  # m, in log-odds; 0 is the population's
    variance: Any  # v; tau^2 for a person who never answered


def anchored(spread: Any, drift: Any) -> Population:
    """The population of a calibrated score: the prediction about a person who never answered is the score itself.

    A calibrated score is an average over people, who differ; the log-odds of one person are farther from 0, by
    sqrt(1 + pi tau^2 / 8), and `predict` takes this back as far as the person is unknown.
    """
    return Population((1 + (np.pi / 8) * spread**2) ** 0.5, 0.0, spread, drift)


def believe(population: Population) -> Belief:
    """The belief about a person who never answered."""
    return Belief(0.0, population.spread**2)


def predict(belief: Belief, log_odds: Reals, population: Population) -> Floats:
    """Log-odds of acceptance, with the doubt about the person's rate averaged out.

    The average of a sigmoid over N(m, v) is close to the sigmoid of its log-odds divided by sqrt(1 + pi v / 8)
    (MacKay 1992). `log_odds` is logit(s_t) of the score.
    """
    mean_log_odds = population.scale * log_odds + population.bias + belief.mean
    return mean_log_odds / (1 + (np.pi / 8) * belief.variance) ** 0.5


def update(belief: Belief, log_odds: Reals, accepted: Reals, population: Population) -> Belief:
    """The belief after an answer, including the drift until the next one.

    One Newton step from m on the log posterior, with the curvature at m: v <- 1 / (1/v + p (1 - p)) and
    m <- m + v (y - p), then v <- v + q. `log_odds` is logit(s_t) of the offer's score; `accepted` is 1 or 0.
    """
    p = sigmoid(population.scale * log_odds + population.bias + belief.mean)
    variance = belief.variance / (1 + belief.variance * p * (1 - p))
    return Belief(belief.mean + variance * (accepted - p), variance + population.drift)


class Predictions(NamedTuple):
    """A log, predicted one row after another."""

    log_odds: Float64[np.ndarray, " rows"]  # predicted log-odds of acceptance, before the row's answer was seen
    belief: Belief  # what was known of the person at that moment


def prequential(
    log_odds: Float[np.ndarray, " rows"],
    accepted: Real[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    population: Population,
    answered: Bool[np.ndarray, " rows"] | None = None,
    places: Lanes | None = None,
) -> Predictions:
    """Predicts every row from the answers of its person that had come by then, and sees its answer when it comes.

    `log_odds` is logit(s_t) of each offer's score. Rows of one person stand in the order in which they happened.
    `answered` marks the rows whose answer, 1 or 0, is seen; None is all. `places` is `lanes(person)` where it is known
    already; with times, where answers may be late. Raises ValueError for an empty log.
    """
    places = places or lanes(person)
    has_answer = np.ones(len(person), bool) if answered is None else answered
    placed = Placed.of(np.where(has_answer, accepted, 0.0), has_answer, places)
    return placed.predictions(population, places.spread(log_odds), places.spread_answers(log_odds))


Spread = Float64[np.ndarray, "steps lanes"]
"""One value for each place of some lanes."""


class Placed(NamedTuple):
    """Answers at their places in lanes, from which several fits and predictions can be made."""

    labels: Spread  # 1 or 0 at each offer
    seen_labels: Spread  # at each place where an answer is seen
    seen: Spread  # 1 at these places
    places: Lanes

    @classmethod
    def of(cls, accepted: Real[np.ndarray, " rows"], has_answer: Bool[np.ndarray, " rows"], places: Lanes) -> Placed:
        """The answers, 1 or 0, of some rows; 0 where there is none."""
        seen = places.spread_answers(has_answer)
        return cls(places.spread(accepted), places.spread_answers(accepted), seen, places)

    def predictions(self, population: Population, log_odds: Spread, of_answers: Spread) -> Predictions:
        """What `prequential` says of the rows.

        Args:
          population: The parameters.
          log_odds: logit(s_t) of the offers, at the places of these.
          of_answers: The same at the places where their answers are seen.
        """
        rows = (log_odds, of_answers, self.seen_labels, self.seen, self.places.first)
        with jax.enable_x64(True):
            out = _scan(jnp.asarray(population, jnp.float64), *rows)
            predicted, mean, variance = (np.asarray(part)[self.places.step, self.places.lane] for part in out)
        return Predictions(predicted, Belief(mean, variance))

    def loss(self, share: Spread, log_odds: Spread, of_answers: Spread) -> Loss:
        """The weighted negative log-likelihood; that of more people is the sum of theirs.

        Args:
          share: Weight of each prediction.
          log_odds: logit(s_t) of the offers, at the places of these.
          of_answers: The same at the places where their answers are seen.
        """
        arrays = (self.labels, share, log_odds, of_answers, self.seen_labels, self.seen, self.places.first)

        def loss(theta: Theta) -> tuple[float, Theta]:
            with jax.enable_x64(True):
                gradient, value = _gradient(jnp.asarray(theta, jnp.float64), *arrays)
                return float(value), np.asarray(gradient, np.float64)

        return loss


def fit_population(
    log_odds: Float[np.ndarray, " rows"],
    accepted: Real[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    counted: Bool[np.ndarray, " rows"] | None = None,
    answered: Bool[np.ndarray, " rows"] | None = None,
    places: Lanes | None = None,
    *,
    calibrated: bool = False,
    weight: Float[np.ndarray, " rows"] | None = None,
) -> Population:
    """The parameters of the highest prequential likelihood, by L-BFGS-B; rows are those of `prequential`.

    The score must not have been fitted on these people's answers. If it is `calibrated` for the people as a whole, only
    tau and q are fitted, and a and b follow from tau (`anchored`), so that nothing is lost at a person's first offer.
    Otherwise all four are fitted.

    `counted` marks the rows whose prediction counts, None is all: leave out all rows of a person to leave out the
    person. `weight` is that of each row's prediction, None is 1 everywhere; a belief counts every answer once. Raises
    ValueError for an empty log, or no row that counts and has an answer.
    """
    places = places or lanes(person)
    has_answer = np.ones(len(person), bool) if answered is None else answered
    share = (has_answer if counted is None else has_answer & counted) * (1.0 if weight is None else weight)
    if not share.any():
        raise ValueError("counted: found no row with an answer, expected some")
    placed = Placed.of(np.where(has_answer, accepted, 0.0), has_answer, places)
    at_places = (places.spread(share / share.sum()), places.spread(log_odds), places.spread_answers(log_odds))
    return _highest(placed.loss(*at_places), calibrated)


Theta = Float64[np.ndarray, " parameters"]
"""(a, b, log tau, log q), or (log tau, log q) where the score is calibrated."""
Loss = Callable[[Theta], tuple[float, Theta]]
"""The negative log-likelihood and its gradient."""


def fit_together(
    names: Iterable[str], losses: Callable[[Mapping[str, Theta]], Mapping[str, tuple[float, Theta]]]
) -> dict[str, Population]:
    """Fits several populations on calibrated scores, as `fit_population`, in step with each other.

    `losses` is called with the parameters that some of the fits ask about, by name, and returns the losses there; so
    one pass over the answers serves all fits. What it raises ends them all.
    """
    asked: queue.SimpleQueue[tuple[str, Theta | None, concurrent.futures.Future[tuple[float, Theta]]]]
    asked = queue.SimpleQueue()

    def fit(name: str) -> Population:
        def loss(theta: Theta) -> tuple[float, Theta]:
            answer: concurrent.futures.Future[tuple[float, Theta]] = concurrent.futures.Future()
            asked.put((name, np.array(theta), answer))
            return answer.result()

        try:
            return _highest(loss, calibrated=True)
        finally:
            asked.put((name, None, concurrent.futures.Future()))  # asks no more

    names = list(names)
    with concurrent.futures.ThreadPoolExecutor(max(1, len(names))) as pool:
        fits = {name: pool.submit(fit, name) for name in names}
        asking = len(fits)
        while asking:
            said = sorted((asked.get() for _ in range(asking)), key=lambda question: question[0])
            answers = {name: answer for name, theta, answer in said if theta is not None}
            asking = len(answers)
            try:
                found = losses({name: theta for name, theta, _ in said if theta is not None}) if answers else {}
            except BaseException as error:
                for answer in answers.values():
                    answer.set_exception(error)
                raise
            for name, answer in answers.items():
                answer.set_result(found[name])
        return {name: fitted.result() for name, fitted in fits.items()}


def _highest(loss: Loss, calibrated: bool) -> Population:
    """The population of the highest likelihood."""
    fitted = slice(2, None) if calibrated else slice(None)
    optimum = scipy.optimize.minimize(loss, _START[fitted], jac=True, method="L-BFGS-B", bounds=_BOUNDS[fitted])
    if not np.isfinite(optimum.fun):
        raise ValueError(f"found a likelihood of {optimum.fun}, expected a number: some log-odds are not finite")
    with jax.enable_x64(True):
        return Population(*map(float, _natural(jnp.asarray(optimum.x, jnp.float64))))


def _natural(theta: Any) -> Population:
    """The population of (a, b, log tau, log q), or of (log tau, log q) where the score is calibrated."""
    last: Any = jnp.exp(theta[-2:])
    spread, drift = last[0], last[1]
    return anchored(spread, drift) if len(theta) == 2 else Population(theta[0], theta[1], spread, drift)


def _predictions(
    theta: Any, log_odds: Any, of_answer: Any, accepted: Any, has_answer: Any, first: Any
) -> tuple[Any, Any, Any]:
    """Predicted log-odds, means and variances, all [steps, lanes]."""
    population = Population(*theta)
    newcomer = believe(population)

    def step(belief: Belief, row: Any) -> tuple[Belief, Any]:
        z, z_answer, y, answered, begins = row
        belief = Belief(*(jnp.where(begins, new, old) for new, old in zip(newcomer, belief, strict=True)))
        after = update(belief, z_answer, y, population)
        kept = Belief(*(jnp.where(answered > 0, new, old) for new, old in zip(after, belief, strict=True)))
        return kept, (predict(belief, z, population), *belief)

    start = Belief(jnp.zeros(first.shape[1]), jnp.full(first.shape[1], newcomer.variance))
    return jax.lax.scan(step, start, (log_odds, of_answer, accepted, has_answer, first))[1]


_scan = jax.jit(_predictions)


@functools.partial(jax.jit)
@functools.partial(jax.jacfwd, has_aux=True)
def _gradient(theta: Any, labels: Any, weight: Any, *rows: Any) -> Any:
    """Gradient and value of the weighted negative log-likelihood; forward mode keeps no intermediate of the scan."""
    predicted, _, _ = _predictions(_natural(theta), *rows)
    value = jnp.sum(weight * (jnp.logaddexp(0.0, predicted) - labels * predicted))
    return value, value
