"""The statistics of answers, each with the state of some parts of whole people."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64

from prism_jax.decision.arrays import log_odds
from prism_jax.decision.calibration import Platt, certain
from prism_jax.decision.gate import intervene
from prism_jax.decision.metrics import step_costs
from prism_jax.decision.off_policy import Moments
from prism_jax.decision.person import Population
from prism_jax.decision.score_maps import EDGE, PLATT, SCORE, TEMPERATURE, Scale, ScoreMap
from prism_jax.evaluation.answers.findings import SEEN, Pair
from prism_jax.evaluation.answers.labelled import Labelled, Placements
from prism_jax.evaluation.answers.measures import BINS, CONSTANTS, RESAMPLES, bin_of, pairs_by_person
from prism_jax.evaluation.answers.own_score import latest_beliefs
from prism_jax.evaluation.answers.parts import Answers
from prism_jax.evaluation.merged.states import Beginning, Largest, State, Statistic, UnitSums, merge
from prism_jax.people.lanes import Lanes, lanes
from prism_jax.people.layer import Placed, Spread, Theta

PERSON, SCORE_PERSON, CONTEXT, CONTEXT_PERSON = "person", "score+person", "context", "context+person"
TRUTH = "truth"
EVERYBODY = -1
"""In place of a fold: what is fitted on all people."""
_FARTHEST = float(scipy.special.logit(1 - EDGE))
"""Largest log-odds that a map takes of a score, as `Scale.unit` has it."""
COUNTED = (
    "answers",
    "accepted",
    "weight",
    "weight_accepted",
    "gate",
    "gate_accepted",
    "known",
    "known_accepted",
    "known_weight",
    "known_weight_accepted",
    "known_weight_score",
)
"""Sums of each fold: counts of answers and of those that accepted, the same by the weights of the study and of costs,
and those of answers with a score, last their scores by the weights of the study."""


@dataclasses.dataclass(frozen=True)
class Census(Statistic):
    """What there is in each fold."""

    folds: int
    weighted: bool

    def add(self, state: State, rows: Answers) -> State:
        """The state with the rows of more people."""
        y, weight = rows.accepted, study_weight(rows, self.weighted)
        known = np.zeros(len(y), bool) if rows.score is None else ~np.isnan(rows.score)
        score = np.zeros(len(y)) if rows.score is None else np.nan_to_num(rows.score)
        of_known = (known, known * y, known * weight, known * weight * y, known * weight * score)
        columns = (np.ones(len(y)), y, weight, weight * y, rows.inverse, rows.inverse * y, *of_known)
        more: dict[str, Any] = {
            "sums": np.stack([np.bincount(rows.fold, column, self.folds) for column in columns], axis=1),
            "unequal": int((weight != 1).sum()),
            "scores": {},
        }
        if rows.score is not None and known.any():
            score = score[known]
            more |= {"low": Largest(-float(score.min())), "high": Largest(float(score.max()))}
            more["certain"] = int(certain(score).sum())
            more["scores"] = {
                fold: Moments.of(score[rows.fold[known] == fold][:, None]) for fold in _present(rows.fold[known])
            }
        return merge(state, more)


@dataclasses.dataclass(frozen=True)
class LabelledScores(Statistic):
    """The score by label, in each fold."""

    scale: Scale
    weighted: bool

    def add(self, state: State, rows: Answers) -> State:
        """The state with the rows of more people."""
        assert rows.score is not None, "there are maps to fit"
        known = ~np.isnan(rows.score)
        score, y, weight = rows.score, rows.accepted, study_weight(rows, self.weighted)
        more = {
            fold: Labelled.of(score[inside], y[inside], weight[inside], self.scale)
            for fold in _present(rows.fold[known])
            for inside in [known & (rows.fold == fold)]
        }
        return merge(state, more)


class Fitted(NamedTuple):
    """What is fitted on all people but those of a fold."""

    base: float  # their rate of acceptance
    weight: float  # sum of their weights
    maps: Mapping[str, ScoreMap] | None  # on their scores; None of a log without
    missing: float  # what stands for a missing score in the row of the score as it is

    def scored(
        self, score: Float64[np.ndarray, " rows"], standard: Float64[np.ndarray, " rows"]
    ) -> dict[str, Float64[np.ndarray, " rows"]]:
        """The predictions that follow from the score alone, and from what `Model.standard` gives of it."""
        assert self.maps is not None, "the log has scores"
        known = ~np.isnan(score)
        found = {SCORE: np.where(known, score, self.missing)}
        if TEMPERATURE in self.maps:
            found[TEMPERATURE] = np.where(known, self.maps[TEMPERATURE](found[SCORE]), self.base)
        # As the layer has it, so that the two are equal where nothing is known of a person.
        return found | {PLATT: scipy.special.expit(self.log_odds(standard, SCORE_PERSON))}

    def log_odds(self, standard: Float64[np.ndarray, "*places"], layer: str) -> Float64[np.ndarray, "*places"]:
        """What a person layer is on top of; Platt's map where there is a score (`Model.standard`)."""
        base = np.full(standard.shape, scipy.special.logit(self.base))
        if layer == PERSON or self.maps is None:
            return base
        platt = self.maps[PLATT]
        assert isinstance(platt.fitted, Platt), "it is the map of this name"
        z = standard if platt.scale.middle is None else (standard - platt.scale.middle) / platt.scale.width
        return np.where(np.isnan(z), base, platt.fitted.of_log_odds(np.clip(z, -_FARTHEST, _FARTHEST)))


@dataclasses.dataclass(frozen=True)
class Model:
    """What predictions are made of, beside the person layers."""

    fitted: dict[int, Fitted]  # by fold, and for everybody
    layers: tuple[str, ...]  # those that are compared
    probability: bool  # whether scores are probabilities
    weighted: bool
    # of the context head, by fold: log-odds of each row of the one part that a log with context has
    heads: Mapping[int, Float64[np.ndarray, " rows"]] | None = None

    def standard(self, score: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Scores, NaN where there is none, as `Fitted.log_odds` takes them: the log-odds of probabilities."""
        return log_odds(Scale().unit(score)) if self.probability else score

    def scored(
        self, score: Float64[np.ndarray, " rows"], fold: Int64[np.ndarray, " rows"]
    ) -> dict[str, Float64[np.ndarray, " rows"]]:
        """The predictions that follow from the score alone, by the people of other folds."""
        found: dict[str, Float64[np.ndarray, " rows"]] = {}
        for number in _present(fold):
            held = fold == number
            for name, p in self.fitted[number].scored(score[held], self.standard(score[held])).items():
                found.setdefault(name, np.empty(len(score)))[held] = p
        return found

    @property
    def fits(self) -> dict[str, tuple[int, str]]:
        """The fits of person layers: the fold that each leaves out, and the layer."""
        folds = [fold for fold in self.fitted if fold != EVERYBODY]
        fits = {f"{layer} {fold}": (fold, layer) for fold in folds for layer in self.layers}
        return fits | {"everybody": (EVERYBODY, self.describing)}

    @property
    def describing(self) -> str:
        """The layer that describes people and the gate on a score, which knows no context."""
        return [layer for layer in self.layers if layer != CONTEXT_PERSON][-1]


@dataclasses.dataclass(frozen=True)
class Likelihood(Statistic):
    """The negative log-likelihood of person layers and its gradient, at the parameters that are asked about."""

    model: Model
    asked: dict[str, Theta]

    def add(self, state: State, rows: Answers) -> State:
        """The state with the rows of more people."""
        people = _AtPlaces.of(rows, self.model)
        weight, fold_at = (people.places.spread(c) for c in (study_weight(rows, self.model.weighted), rows.fold))
        more = {}
        for name, theta in self.asked.items():
            fold, layer = self.model.fits[name]
            fitted = self.model.fitted[fold]
            share = np.where(fold_at == fold, 0.0, weight / fitted.weight)
            value, gradient = people.placed.loss(share, *people.log_odds(self.model, fold, layer))(theta)
            more[name] = np.append(value, gradient)
        return merge(state, more)


class _AtPlaces(NamedTuple):
    """Answers at their places in lanes, and the scores that person layers are on top of."""

    placed: Placed
    offers: Spread  # what `Model.standard` gives of the scores
    answers: Spread

    @classmethod
    def of(cls, rows: Answers, model: Model) -> _AtPlaces:
        places = lanes(rows.person, rows.time, rows.answered).padded()
        placed = Placed.of(rows.accepted, np.ones(len(rows.accepted), bool), places)
        standard = model.standard(rows.scores)
        offers = places.spread(standard)
        # An answer that came at once stands at the place of its offer.
        return cls(placed, offers, offers if rows.answered is None else places.spread_answers(standard))

    @property
    def places(self) -> Lanes:
        return self.placed.places

    def log_odds(self, model: Model, fold: int, layer: str) -> tuple[Spread, Spread]:
        """Those of offers and answers."""
        if layer == CONTEXT_PERSON:
            assert model.heads is not None, "the layer is on top of them"
            return self.places.spread(model.heads[fold]), self.places.spread_answers(model.heads[fold])
        fitted = model.fitted[fold]
        offers = fitted.log_odds(self.offers, layer)
        return offers, offers if self.answers is self.offers else fitted.log_odds(self.answers, layer)


@dataclasses.dataclass(frozen=True)
class Predictor:
    """Predicts the answers of parts."""

    model: Model
    populations: dict[str, Population]  # of the fits
    scale: Scale  # of the bins of the score

    @property
    def of_folds(self) -> list[Population]:
        """The person layer of each fold: on the context head, else on the score, or alone."""
        folds = sorted(self.model.fitted.keys() - {EVERYBODY})
        return [self.populations[f"{self.model.layers[-1]} {fold}"] for fold in folds]

    def predictions(self, rows: Answers, people: _AtPlaces | None = None) -> dict[str, Float64[np.ndarray, " rows"]]:
        """Every prediction of every row, by the people of other folds and the person's own earlier answers."""
        people = _AtPlaces.of(rows, self.model) if people is None else people
        number = len(rows.accepted)
        found: dict[str, Float64[np.ndarray, " rows"]] = {"constant": np.empty(number)}
        for fold in _present(rows.fold):
            held, fitted = rows.fold == fold, self.model.fitted[fold]
            found["constant"][held] = fitted.base
            for layer in self.model.layers:
                population = self.populations[f"{layer} {fold}"]
                run = people.placed.predictions(population, *people.log_odds(self.model, fold, layer))
                found.setdefault(layer, np.empty(number))[held] = scipy.special.expit(run.log_odds[held])
            if self.model.heads is not None:
                found.setdefault(CONTEXT, np.empty(number))[held] = scipy.special.expit(self.model.heads[fold][held])
        if rows.score is not None:
            found |= self.model.scored(rows.score, rows.fold)
        return found if rows.truth is None else found | {TRUTH: rows.truth}


def _ranking(name: str, p: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
    """What a prediction ranks by; folds differ in their constant, which ranks nothing."""
    return np.zeros(len(p)) if name == "constant" else p


@dataclasses.dataclass(frozen=True)
class Ranks(Statistic):
    """What predictions rank by, by label."""

    predictor: Predictor

    def add(self, state: State, rows: Answers) -> State:
        """The state with the rows of more people."""
        weight = study_weight(rows, self.predictor.model.weighted)
        predictions = self.predictor.predictions(rows)
        more = {
            name: Labelled.of(
                _ranking(name, p), rows.accepted, weight, self.predictor.scale if name == SCORE else Scale()
            )
            for name, p in predictions.items()
        }
        return merge(state, more)


@dataclasses.dataclass(frozen=True)
class Sums(Statistic):
    """Sums over each person of what tables need, what the layer knows of each, and sums of all rows."""

    predictor: Predictor
    placements: dict[str, Placements]
    probabilities: tuple[str, ...]  # the predictions that are probabilities; there is a gate on all but the truth
    pair: Pair
    costs: tuple[float, float]  # C_FA and C_FN
    seed: int

    def add(self, state: State, rows: Answers) -> State:
        """The state with the rows of more people."""
        people, number = np.unique(rows.person, return_inverse=True)
        at_places = _AtPlaces.of(rows, self.predictor.model)
        predictions, places = self.predictor.predictions(rows, at_places), at_places.places
        errors = {name: (predictions[name] - rows.accepted) ** 2 for name in self.probabilities}
        columns = self._columns(rows, predictions, errors, places.known)  # one after the other: each is as long as rows
        sums = {name: np.bincount(number, column, len(people)) for name, column in columns}
        weight = study_weight(rows, self.predictor.model.weighted)
        for name in self.probabilities:
            gap, bins = weight * (predictions[name] - rows.accepted), number * BINS + bin_of(predictions[name])
            gaps = np.bincount(bins, gap, len(people) * BINS).reshape(-1, BINS)
            sums |= {f"gap {name} {i}": gaps[:, i] for i in range(BINS)}
        for name, p in predictions.items():
            pairs = pairs_by_person(_ranking(name, p), rows.accepted, rows.person, weight)
            sums |= {f"pairs {name}": pairs[:, 0], "pairs": pairs[:, 1]}
            one, ones, zero, zeros = (sums[column] for column in (f"one {name}", "one", f"zero {name}", "zero"))
            # A person's own pairs above what their placements let expect.
            sums[f"own {name}"] = pairs[:, 0] - one * zeros - zero * ones + self.placements[name].auroc * ones * zeros
        names = [f"{person:012d}" for person in people.tolist()]  # in the order of their places
        units = UnitSums.of(names, sums, resamples=RESAMPLES, seed=self.seed)
        more = {"units": units, "people": self._people(rows, sums["answers"], sums["accepted"])}
        return merge(state, more | self._totals(rows, predictions, errors, places.known))

    def _columns(
        self, rows: Answers, predictions: Mapping[str, Any], errors: Mapping[str, Any], seen: Int64[np.ndarray, " rows"]
    ) -> Iterator[tuple[str, Float64[np.ndarray, " rows"]]]:
        """What is summed over each person, by name."""
        y, weight, gate = rows.accepted, study_weight(rows, self.predictor.model.weighted), rows.inverse
        yield from {"answers": np.ones(len(y)), "accepted": y, "weight": weight, "gate": gate}.items()
        yield from {"one": weight * y, "zero": weight * (1 - y)}.items()
        for name, p in predictions.items():
            among = self.placements[name]
            place = among.ranked.place_of(_ranking(name, p))
            yield f"one {name}", weight * y * among.accepted[place]
            yield f"zero {name}", weight * (1 - y) * among.rejected[place]
        for name, error in errors.items():
            yield f"error {name}", weight * error
        if "score" in errors:
            assert rows.score is not None, "it is among the predictions"
            known = weight * ~np.isnan(rows.score)
            yield from {"known": known, "known rows": (known > 0) * 1.0}.items()
            yield "known score", known * errors["score"]
            yield "known constant", known * errors["constant"]
            yield "known difference", known * (errors["score"] - errors["constant"])
            yield f"known {PLATT}", known * errors[PLATT]
            yield "known correction", known * (errors["score"] - errors[PLATT])
        gain = weight * (errors[self.pair.with_person] - errors[self.pair.without])
        gain[np.abs(gain) < 1e-14] = 0.0  # as at a first offer, where two ways of computing one number round apart
        for i, inside in enumerate(_by_seen(seen)):
            yield from {f"seen {i}": inside * 1.0, f"weight {i}": weight * inside, f"gain {i}": gain * inside}.items()
        offers = self._offers(predictions)
        costs = {name: step_costs(offer, y, y, *self.costs) for name, offer in offers.items()}
        for name, cost in costs.items():
            yield f"cost {name}", gate * cost
            for constant in CONSTANTS:
                yield f"{constant} {name}", gate * (cost - costs[constant])

    def _offers(self, predictions: Mapping[str, Float64[np.ndarray, " rows"]]) -> dict[str, Bool[np.ndarray, " rows"]]:
        """What always, never and the gate on each probability do."""
        rows = len(predictions["constant"])
        gates = {
            name: np.asarray(intervene(predictions[name], predictions[name], *self.costs))
            for name in self.probabilities
            if name != TRUTH
        }
        return {"always": np.ones(rows, bool), "never": np.zeros(rows, bool)} | gates

    def _totals(
        self, rows: Answers, predictions: Mapping[str, Any], errors: Mapping[str, Any], seen: Int64[np.ndarray, " rows"]
    ) -> State:
        """Sums over all rows, of which no interval is made."""
        weight, gate = study_weight(rows, self.predictor.model.weighted), rows.inverse
        known = np.zeros(len(gate)) if rows.score is None else weight * ~np.isnan(rows.score)
        inside, offers = np.stack(list(_by_seen(seen))), self._offers(predictions)
        return {
            "offers": {name: float(gate @ offer) for name, offer in offers.items()},
            "wrong": {name: float(gate @ (offer * (1 - rows.accepted))) for name, offer in offers.items()},
            "where_known": {name: float(known @ error) for name, error in errors.items()},
            "known": float(known.sum()),
            "seen": {name: inside @ (weight * error) for name, error in errors.items()},
            "seen_people": np.array([len(np.unique(rows.person[one])) for one in inside]),
            "log_odds": float(self._of_everybody(rows).sum()),
        }

    def _of_everybody(self, rows: Answers) -> Float64[np.ndarray, " rows"]:
        """The log-odds of each offer by the maps that are fitted on all people."""
        model = self.predictor.model
        return model.fitted[EVERYBODY].log_odds(model.standard(rows.scores), model.describing)

    def _people(self, rows: Answers, answers: np.ndarray, accepted: np.ndarray) -> Beginning:
        """What the log and the layer say of each person after all of their answers."""
        z = self._of_everybody(rows)
        population = self.predictor.populations["everybody"]
        people, belief = latest_beliefs(population, z, rows.accepted, rows.person, rows.time, rows.answered)
        columns = {"person": people, "answers": answers, "accepted": accepted}
        return Beginning(columns | {"mean": belief.mean, "variance": belief.variance}, sys.maxsize)


def study_weight(rows: Answers, weighted: bool) -> Float64[np.ndarray, " rows"]:
    """The weight of each answer in fits and measures."""
    return rows.inverse if weighted else np.ones(len(rows.accepted))


def _present(fold: Int64[np.ndarray, " rows"]) -> Sequence[int]:
    return np.unique(fold).tolist()


def _by_seen(seen: Int64[np.ndarray, " rows"]) -> Iterator[Bool[np.ndarray, " rows"]]:
    """Which rows had each of the numbers of earlier answers that are compared."""
    for low, high in SEEN:
        yield (seen >= low) & (seen <= (np.inf if high is None else high))
