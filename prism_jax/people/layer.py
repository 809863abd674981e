"""People's own rates over a log of answers, and the fit of the population (docs/maths.md, section 13).

The formulas of one answer are in `prism_jax.decision.person`. Everything over logs is computed in float64: the fit adds
up the loss of up to millions of answers. What XLA compiles is in `scan`, imported once there are answers to predict, so
that a log that is refused does not wait for JAX.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Float64, Int, Real

from prism_jax.decision.person import Belief, Population
from prism_jax.people.lanes import Lanes, lanes

_BOUNDS = ((-5.0, 5.0), (-10.0, 10.0), (np.log(0.01), np.log(5.0)), (np.log(1e-7), np.log(0.5)))
"""Ranges of a, b, log tau and log q in the fit."""
_START = (1.0, 0.0, np.log(0.6), np.log(0.01))


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
        from prism_jax.people import scan

        out = scan.predictions(population, log_odds, of_answers, self.seen_labels, self.seen, self.places.first)
        predicted, mean, variance = (part[self.places.step, self.places.lane] for part in out)
        return Predictions(predicted, Belief(mean, variance))

    def loss(self, share: Spread, log_odds: Spread, of_answers: Spread) -> Loss:
        """The weighted negative log-likelihood; that of more people is the sum of theirs.

        Args:
          share: Weight of each prediction.
          log_odds: logit(s_t) of the offers, at the places of these.
          of_answers: The same at the places where their answers are seen.
        """
        from prism_jax.people import scan

        arrays = (self.labels, share, log_odds, of_answers, self.seen_labels, self.seen, self.places.first)
        return lambda theta: scan.loss(theta, *arrays)


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
    one pass over the answers serves all fits. What it raises ends them all, and so does Ctrl-C between two calls.
    """
    asked: queue.SimpleQueue[tuple[str, Theta | None]] = queue.SimpleQueue()
    answers: dict[str, concurrent.futures.Future[tuple[float, Theta]]] = {}
    ended = threading.Event()

    def fit(name: str) -> Population:
        def loss(theta: Theta) -> tuple[float, Theta]:
            answer = answers[name] = concurrent.futures.Future[tuple[float, Theta]]()
            asked.put((name, np.array(theta)))
            if ended.is_set():  # where nobody else sees the new answer
                answer.cancel()
            return answer.result()

        try:
            return _highest(loss, calibrated=True)
        finally:
            asked.put((name, None))  # asks no more

    names = list(names)
    with concurrent.futures.ThreadPoolExecutor(max(1, len(names))) as pool:
        try:
            fits = {name: pool.submit(fit, name) for name in names}
            asking = len(fits)
            while asking:
                said = sorted((asked.get() for _ in range(asking)), key=lambda question: question[0])
                thetas = {name: theta for name, theta in said if theta is not None}
                asking = len(thetas)
                found = losses(thetas) if thetas else {}
                for name in thetas:
                    answers[name].set_result(found[name])
            return {name: fitted.result() for name, fitted in fits.items()}
        finally:
            ended.set()
            for answer in list(answers.values()):
                answer.cancel()  # which a fit may wait for, and the pool for the fit


def _highest(loss: Loss, calibrated: bool) -> Population:
    from prism_jax.people import scan

    fitted = slice(2, None) if calibrated else slice(None)
    optimum = scipy.optimize.minimize(loss, _START[fitted], jac=True, method="L-BFGS-B", bounds=_BOUNDS[fitted])
    if not np.isfinite(optimum.fun):
        raise ValueError(f"found a likelihood of {optimum.fun}, expected a number: some log-odds are not finite")
    return scan.population_of(optimum.x)
