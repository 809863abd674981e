"""The labels that a signal is fitted and measured on, with their weights.

Need belongs to the step and is counted once per step. Acceptance belongs to the offer and is counted once per offer
whose answer was observed, weighted by its clipped inverse propensity if the log records one (docs/maths.md, section 4).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Shaped

from prism_jax.decision import arrays
from prism_jax.decision.calibration import (
    LEAST_BOUND,
    CalibrationConfig,
    CalibrationWarning,
    Isotonic,
    Map,
    Platt,
    Temperature,
    certain,
    fit_map,
    fit_penalised,
)
from prism_jax.decision.propensity import propensity_weight
from prism_jax.scores.schema import ScoresError
from prism_jax.scores.table import Scores

Signal = Literal["need", "accept"]
Thinking = Literal["fast", "slow"]


def acceptance_weight(scores: Scores) -> Float64[np.ndarray, "rows"]:
    """The weight of each row's acceptance label: clipped 1 / e if the logging policy made the offer, else 1."""
    weight = np.ones(len(scores))
    if scores.logged is not None and scores.propensity is not None:
        offered = (scores.logged == 1) & ~np.isnan(scores.propensity)
        if offered.any():  # columns that are null in every row are as good as none
            weight[offered] = propensity_weight(scores.logged[offered], scores.propensity[offered])
    return weight


class Labels(NamedTuple):
    """How many labels a signal is fitted on."""

    number: int
    effective: float  # what they are worth with their weights
    certain: int  # those of a probability that is stated as certain, exactly 0 or 1
    unweighted: int  # those of offers that a log says it made, without a propensity

    def said(self, fitted: Map) -> list[str]:
        """What to say of a map that was fitted on them: of stated certainties, and of a selection that it learns."""
        said = []
        bound = fitted.bound if isinstance(fitted, Platt) else None
        if self.certain:
            what = "no temperature moves them, and they are left out of its fit"
            if bound is not None:
                why = "that of 1 label in 22" if bound == LEAST_BOUND else "the largest of the others"
                what = f"they count as log-odds of {bound:.2f}, {why}, as all beyond will"
            elif isinstance(fitted, Isotonic):
                what = "they are fitted as they are, and no end of the map is 0 or 1"
            said.append(f"{self.certain} of {self.number} probabilities with labels are exactly 0 or 1: {what}")
        if self.unweighted == self.number and isinstance(fitted, Platt):
            said.append(
                f"all {self.number} labels are of offers that were shown, without a propensity: a bias learns which "
                "offers the log showed, unless it showed all; expected a column propensity"
            )
        return said


class Readings(NamedTuple):
    """One signal on its own rows: steps for need, offers for acceptance."""

    rows: Scores  # these rows
    p: Float64[np.ndarray, "n"]  # raw probabilities, NaN where the pass did not run
    y: Float64[np.ndarray, "n"]  # labels, NaN where unknown
    true: Float64[np.ndarray, "n"]  # the simulator's true probabilities, NaN where unknown
    weight: Float64[np.ndarray, "n"]  # weights of the labels

    @property
    def labels(self) -> Labels:
        """How many labels there are, and of what kind."""
        p, _, weight = self.labelled()
        logged, propensity = (None if of is None else of[self.known] for of in (self.rows.logged, self.rows.propensity))
        shown = np.zeros(len(p), bool) if logged is None else logged == 1
        known = np.zeros(len(p), bool) if propensity is None else ~np.isnan(propensity)
        return Labels(len(p), arrays.effective_count(weight), int(certain(p).sum()), int((shown & ~known).sum()))

    @property
    def known(self) -> Bool[np.ndarray, "n"]:
        """The rows whose probability and label are known."""
        return ~np.isnan(self.p) & ~np.isnan(self.y)

    def labelled(self) -> tuple[Float64[np.ndarray, "k"], Float64[np.ndarray, "k"], Float64[np.ndarray, "k"]]:
        """Probability, label and weight of the rows whose probability and label are known."""
        known = self.known
        return (self.p, self.y, self.weight) if known.all() else (self.p[known], self.y[known], self.weight[known])


def read(rows: Scores, signal: Signal, thinking: Thinking, *, own_offers: bool | None = None) -> Readings:
    """One signal of some rows; a column that is not in the table is NaN everywhere.

    Need given acceptance (`Scores.need_given_accept`) is read on steps whose offer was accepted: the label of need is
    NaN elsewhere, and counts with the weight of the acceptance (docs/maths.md, section 2). That offer is the pass's own
    where every row of the table has the pass's p_accept, else the fast pass's. Where these rows are a part of a table,
    `own_offers` says so.
    """
    given_accept = signal == "need" and rows.need_given_accept
    if own_offers is None:
        own_offers = not np.isnan(rows.numbers(f"p_accept_{thinking}")).any()
    table = rows.steps(thinking if given_accept and own_offers else "fast") if signal == "need" else rows
    names = (f"p_{signal}_{thinking}", f"y_{signal}", f"p_{signal}_true")
    p, y, true = (table.numbers(name) for name in names)
    if not given_accept:
        return Readings(table, p, y, true, np.ones(len(table)) if signal == "need" else acceptance_weight(table))
    accepted = acceptance_weight(table) * np.nan_to_num(table.numbers("y_accept"))
    with np.errstate(invalid="ignore"):  # an offer that is never accepted has no need given acceptance: NaN
        true = table.numbers("p_both_true") / table.numbers("p_accept_true")
    return Readings(table, p, np.where(accepted > 0, y, np.nan), true, accepted)


def fit_labelled(
    signal: Signal,
    thinking: Thinking | None,
    config: CalibrationConfig,
    p: Float64[np.ndarray, "n"],
    y: Float64[np.ndarray, "n"],
    weight: Float64[np.ndarray, "n"],
    domain: Shaped[np.ndarray, "n"] | None,
    labels: Labels,
    *,
    calibrated: bool = False,
) -> Map:
    """The map of a signal's labelled rows, the identity if they are `calibrated`.

    Without `thinking` they are of no table, and for `penalised` labels of one class are enough. ScoresError and
    CalibrationWarning name the signal.
    """
    name = f"p_{signal}" if thinking is None else f"p_{signal}_{thinking}"
    if len(y) == 0:
        without = "; without any column of need, p_accept alone is evaluated" if signal == "need" else ""
        raise ScoresError(
            f"found no label on the calibration split, expected some of both classes{without}", f"y_{signal}"
        )
    if calibrated:
        return Temperature(1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        try:
            if thinking is None and config.calibrator == "penalised":
                fitted: Map = fit_penalised(p, y, weight)
            else:
                fitted = fit_map(config, p, y, weight, domain, effective=labels.effective)
        except ValueError as error:
            raise ScoresError(f"cannot calibrate {name}: {error}", f"y_{signal}") from None
    messages = [str(warning.message) for warning in caught]
    messages += labels.said(fitted)
    if isinstance(fitted, Platt) and fitted.scale <= 0:
        messages.append(f"platt: found the scale {fitted.scale:.3g}, which reverses the order of the scores")
    for message in messages:
        warnings.warn(f"{name}: {message}", CalibrationWarning, stacklevel=3)
    return fitted


def maps_of_table(scores: Scores, config: CalibrationConfig) -> tuple[Map | None, Map | None]:
    """The maps of p_accept and of p_need of `prism_jax.Gate.fit`; None without need, or of calibrated probabilities."""
    if scores.calibrated is not None:
        return None, None
    if scores.split is not None:
        folds = set() if scores.fold is None else set(scores.fold[scores.split == "test"].tolist())
        name = "calibration" if len(folds) < 2 or (scores.split == "calibration").any() else "test"
        if not (scores.split == name).any():
            raise ScoresError(
                "found no row of the split 'calibration', expected some: maps are not fitted on others", "split"
            )
        scores = scores.take(scores.split == name)

    def fit(signal: Signal) -> Map:
        readings = read(scores, signal, "fast")
        domain = None if readings.rows.domain is None else readings.rows.domain[readings.known]
        return fit_labelled(signal, "fast", config, *readings.labelled(), domain, readings.labels)

    return fit("accept"), fit("need") if scores.has_need else None


def maps_of_columns(columns: Mapping[str, np.ndarray], config: CalibrationConfig) -> tuple[Map | None, Map | None]:
    """The maps of p_accept and of p_need on one's own columns; None of a signal without labels."""
    if not columns:
        raise ValueError("scores: found none, expected a scores table, its file, or columns such as p_accept, y_accept")
    if config.calibrator == "grouped":
        raise ValueError("calibrator: found 'grouped', expected one without domains, which only a scores table has")
    for name in ("p_accept", "p_need") if "y_need" in columns else ("p_accept",):
        if name not in columns:
            raise ValueError(f"{name}: found none beside {', '.join(columns)}, expected a probability for each row")
    if any(map(len, columns.values())):
        arrays.check_lengths(**columns)

    expected = "a probability in [0, 1]: divide percentages by 100, and leave out rows without one"

    def fit(signal: Signal) -> Map | None:
        p, y = columns.get(f"p_{signal}"), columns.get(f"y_{signal}")
        if p is None or not len(p):
            return None
        arrays.check_range(f"p_{signal}", p, 0.0, 1.0, expected)
        if y is None:
            return None
        known = ~np.isnan(y)
        arrays.check_range(
            f"y_{signal}", np.where(known, y, 0.0), 0.0, 1.0, "a label in [0, 1], or None where it is not known"
        )
        if not known.any():
            said = f"y_{signal}: found no label in {len(y)} rows, expected some; p_{signal} is taken as it is"
            warnings.warn(said, CalibrationWarning, stacklevel=4)
            return None
        p, y, few = p[known], y[known], config.calibrator == "penalised"
        if not few and y.mean() in (0.0, 1.0):
            raise ValueError(f"y_{signal}: found only the label {y[0]:g}, expected both, or the calibrator 'penalised'")
        labels = Labels(len(y), float(len(y)), int(certain(p).sum()), 0)
        return fit_labelled(signal, None, config, p, y, np.ones(len(y)), None, labels)

    return fit("accept"), fit("need")
