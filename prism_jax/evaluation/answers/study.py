"""Predicts every answer of a log from other people, and from the person's own earlier answers, and measures that.

Folds hold whole people: ten of them, or one per person where there are fewer. Every setting is fitted or chosen on the
people outside the fold. Inside it a prediction knows the person's answers that had come before the offer.

A log is some parts of whole people; one in memory is one part. Statistics run over the parts in this order: what there
is; the scores by label, from which maps are fitted; the likelihood of the person layers, as often as their fits ask;
what the predictions rank by; and the sums of everything else.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int

from prism_jax.decision.off_policy import Moments
from prism_jax.decision.person import Belief, Population
from prism_jax.decision.score_maps import PLATT, Scale, ScoreMap, simplest_best
from prism_jax.decision.uncertainty import Cells, Estimate, Resampled
from prism_jax.evaluation.answers.by_group import Groups
from prism_jax.evaluation.answers.columns import LogColumns, LogError
from prism_jax.evaluation.answers.context import fit_head
from prism_jax.evaluation.answers.curves import Curves
from prism_jax.evaluation.answers.findings import SEEN, Costs, Facts, Findings, Group, Pair, Part, Question, pair_of
from prism_jax.evaluation.answers.log_tables import ContextColumn
from prism_jax.evaluation.answers.logs import AcceptanceLog
from prism_jax.evaluation.answers.measures import (
    BINS,
    CONSTANTS,
    MEANINGS,
    Measures,
    mean_gap,
    means_of,
    ratio,
    share_of,
)
from prism_jax.evaluation.answers.own_score import Beliefs, OwnScore, described
from prism_jax.evaluation.answers.parts import Answers, Divided, answered_rows
from prism_jax.evaluation.answers.statistics import (
    CONTEXT_PERSON,
    COUNTED,
    EVERYBODY,
    PERSON,
    SCORE_PERSON,
    TRUTH,
    Census,
    Fitted,
    Labelled,
    LabelledScores,
    Likelihood,
    Model,
    Placements,
    Predictor,
    Ranks,
    Sums,
    study_weight,
)
from prism_jax.evaluation.intervals import totals_of
from prism_jax.evaluation.merged.states import State, Statistic, UnitSums, merge
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import Theta, fit_together

ALONE = ("constant", "score", "score, temperature", "score, Platt", "context", TRUTH)
"""Predictions that need no other people to compare a person with."""
Runner = Callable[[str, Any], State]
"""Runs a statistic, under a name, over all parts and gives its state."""


class Predicted(NamedTuple):
    """Predictions of a log in memory by their names. Arrays are those of answered offers, by person and time."""

    predictions: dict[str, Float64[np.ndarray, " rows"]]  # probabilities; a score that is none stays as it is
    accepted: Float64[np.ndarray, " rows"]
    person: Int[np.ndarray, " rows"]
    row: Int[np.ndarray, " rows"]  # row of the log
    weight: Float64[np.ndarray, " rows"]  # in fits and measures; 1 on all rows unless the study is weighted
    seen: Int[np.ndarray, " rows"]  # number of the person's answers that had come before the offer
    folds: int
    populations: tuple[Population, ...]  # of each fold's person layer: on the context head, else on the score, or alone


def study(log: AcceptanceLog, seed: int = 0, *, weighted: bool = False) -> Predicted:
    """Predicts the answers of a log of at least two people with answers of both kinds.

    A weighted study weighs answers by their clipped inverse propensities (docs/maths.md, sections 4 and 13). The seed
    is that of the folds.

    Raises:
      LogError: if weights are asked for and the log has no propensities, or its offers contradict them.
      ValueError: if the people outside some fold have answers of one kind only, with a score or at all.
    """
    divided = Divided.of_log(log, weighted=weighted, seed=seed)
    (rows,) = divided.parts
    assert isinstance(rows, Answers), "they are in memory"
    predictor = _fitted(in_memory(divided), divided, weighted)[1]
    predictions = predictor.predictions(rows)
    return Predicted(
        {name: predictions[name] for name in MEANINGS if name in predictions},
        rows.accepted,
        rows.person,
        answered_rows(log),
        study_weight(rows, weighted),
        lanes(rows.person, rows.time, rows.answered).known,
        divided.folds,
        tuple(predictor.of_folds),
    )


def in_memory(log: Divided) -> Runner:
    """Runs statistics over the one part of a log in memory."""

    def run(_: str, statistic: Statistic) -> State:
        return statistic.add(statistic.init(), log.parts[0])

    return run


def maps_by_fold(run: Runner, log: Divided, weighted: bool) -> tuple[_Table, Model]:
    """The sums by fold, and the rates and maps that are fitted; ValueError for a log of which none can be."""
    table = _Table(run("scan", Census(log.folds, weighted)), log.contents.scale, {})
    table.check(log.scored, log.place)
    scores = run("maps", LabelledScores(table.scale, weighted)) if log.scored else {}
    table = table._replace(scores=scores)
    fitted = {fold: table.fitted(scores, fold) for fold in (*range(log.folds), EVERYBODY)}
    layers = (PERSON, SCORE_PERSON) if log.scored else (PERSON,)
    return table, Model(fitted, layers, table.probability, weighted)


def _fitted(run: Runner, log: Divided, weighted: bool) -> tuple[_Table, Predictor]:
    """The sums by fold, and all that is fitted; ValueError for a log of which nothing can be fitted."""
    table, model = maps_by_fold(run, log, weighted)
    first, layers = log.parts[0], model.layers
    if isinstance(first, Answers) and first.context:
        model = dataclasses.replace(model, layers=(*layers, CONTEXT_PERSON), heads=_heads(model, first))
    return table, Predictor(model, _populations(run, model), table.scale)


def _heads(model: Model, rows: Answers) -> dict[int, Float64[np.ndarray, " rows"]]:
    """Log-odds of the context head of each fold, for all rows."""
    heads, standard, weight = {}, model.standard(rows.scores), study_weight(rows, model.weighted)
    for fold in sorted(model.fitted.keys() - {EVERYBODY}):
        context, train = rows.context, rows.fold != fold
        if rows.score is not None:
            z = model.fitted[fold].log_odds(standard, SCORE_PERSON)
            known = np.where(np.isnan(rows.score), np.nan, z)
            context = (*context, ContextColumn("log-odds of the score", "number", known))
        unit = weight[train].mean()  # so that the ridge means the same
        heads[fold] = fit_head(context, rows.accepted, rows.person, train, weight / unit).log_odds
    return heads


def study_parts(run: Runner, log: Divided, columns: LogColumns, question: Question, shown_only: bool) -> Findings:
    """What a log says of a question.

    Args:
      run: What runs a statistic over the parts.
      log: The parts, and what there is in them; one with context has one part, in memory.
      columns: Says which column is the score, and in which unit.
      question: What is asked.
      shown_only: Whether the log holds none of the offers that were not made.

    Raises:
      ValueError: in one line, for a log on which nothing can be measured.
    """
    table, predictor = _fitted(run, log, question.weighted)
    fitted = predictor.model.fitted
    placements = {name: Placements.of(ranked) for name, ranked in run("ranks", Ranks(predictor)).items()}
    predicted = [name for name in MEANINGS if name in placements]
    measured = tuple(name for name in predicted if name != "score" or table.probability)
    probabilities = tuple(name for name in measured if name != TRUTH)
    pair, bounds = pair_of(probabilities), {name: placements[name].bound for name in predicted}
    c_fa, c_fn = question.c_fa, question.c_fn
    accepted = table.of("gate_accepted")
    better = "always" if c_fa * (table.of("gate") - accepted) <= c_fn * accepted else "never"
    sums = run("sums", Sums(predictor, placements, measured, pair, (c_fa, c_fn), question.seed))
    read = _Read(sums, sums["units"], question.seed)
    own = _own(columns, fitted, table, read, question.threshold)
    maps = {fold: one.maps for fold, one in fitted.items() if one.maps is not None and fold != EVERYBODY}
    silent, alone = log.contents.not_made, log.unit != "people"
    if alone:  # nobody is there to compare a person's own rate with
        predicted = [name for name in predicted if name in ALONE]
        probabilities = tuple(name for name in probabilities if name in ALONE)
    measures = {name: read.measures(name, placements[name], name in measured) for name in predicted}
    return Findings(
        facts=Facts(
            rows=log.contents.rows - (silent if shown_only else 0),
            answers=int(table.of("answers")),
            people=len(log.numbers),
            unit=log.unit,
            accepted=table.of("weight_accepted") / table.of("weight"),
            score_missing=None if own is None else int(table.of("answers") - table.of("known")),
            not_made=silent,
            shown_only=shown_only and silent > 0,
            timed=log.timed,
            folds=log.folds,
            unequal=table.census["unequal"] > 0,
            doubted=log.doubted,
        ),
        populations=[] if alone else predictor.of_folds,
        measured={name: one._replace(within_person=None) if alone else one for name, one in measures.items()},
        compared=read.compared() if "score" in probabilities else None,
        parts=[] if alone else read.by_answers(probabilities, pair),
        pair=pair,
        own=own,
        groups=_groups(run, log, predictor, PERSON if own is None else own.best, question),
        curves=None if own is None else Curves.of(table.scores, maps, own.rule, (c_fa, c_fn)),
        people=[]
        if alone
        else read.people(log, predictor, None if own is None else own.maps[PLATT], table, question.threshold),
        costs=read.costs((*CONSTANTS, *probabilities), max(c_fa, c_fn), better),
        bounds=bounds if any(bounds.values()) else None,
    )


def _groups(run: Runner, log: Divided, predictor: Predictor, gate: str, question: Question) -> list[Group]:
    """What the log says by the kind of the offer; nothing of a log without kinds."""
    if log.groups is None:
        return []
    groups = Groups(predictor, gate, (question.c_fa, question.c_fn), question.seed)
    return groups.read(run("groups", groups), log.groups)


def _populations(run: Runner, model: Model) -> dict[str, Any]:
    """The person layers, fitted in step: each round of questions is one pass over the answers."""
    rounds = 0

    def losses(asked: Mapping[str, Theta]) -> dict[str, tuple[float, Theta]]:
        nonlocal rounds
        rounds += 1
        state = run(f"fit-{rounds:02d}", Likelihood(model, dict(asked)))
        return {name: (float(loss[0]), loss[1:]) for name, loss in state.items()}

    return fit_together(model.fits, losses)


class _Table(NamedTuple):
    """Sums by fold, and what is fitted from them."""

    census: State
    scale: Scale  # of the bins of the scores
    scores: Mapping[int, Labelled]  # by label, of each fold

    @property
    def probability(self) -> bool:
        """Whether every score lies between 0 and 1."""
        return self.scale.middle is None

    def of(self, name: str, without: int = EVERYBODY) -> float:
        """A sum over all people, or those outside a fold."""
        column = self.census["sums"][:, COUNTED.index(name)]
        return float(column.sum() - (column[without] if without != EVERYBODY else 0.0))

    def rate(self, without: int = EVERYBODY) -> float:
        """The share of accepted answers, by the weights of the study."""
        return self.of("weight_accepted", without) / self.of("weight", without)

    def check(self, scored: bool, place: str) -> None:
        """Raises LogError if the people outside some fold have answers of one kind only, with a score or at all."""
        for fold in range(len(self.census["sums"])):
            if scored and not self.of("known", fold):
                raise LogError(
                    f"{place}: score: found values on no offer, or of too few people, expected some outside each fold"
                )
            if self.of("accepted", fold) in (0, self.of("answers", fold)):
                raise LogError(
                    f"{place}: found people, or days of one person, whose removal leaves answers of one kind, expected "
                    "both among the rest"
                )
            if scored and self.of("known_accepted", fold) in (0, self.of("known", fold)):
                raise LogError(
                    f"{place}: score: found it on answers of one kind only among the people outside a fold, expected "
                    "both"
                )

    def scale_without(self, fold: int) -> Scale:
        """The scale of the scores of the people outside a fold."""
        moments = self.moments(fold)
        if self.probability or moments is None:
            return Scale()
        return Scale(float(moments.mean[0]), float(np.sqrt(moments.squares[0] / moments.rows)) or 1.0)

    def moments(self, without: int) -> Moments | None:
        """Of the scores of the people outside a fold; None without any."""
        parts = [moments for fold, moments in sorted(self.census["scores"].items()) if fold != without]
        return functools.reduce(merge, parts) if parts else None

    def fitted(self, scores: Mapping[int, Labelled], fold: int) -> Fitted:
        """What is fitted on the people outside a fold; no maps without scores."""
        base, weight, moments = self.rate(fold), self.of("weight", fold), self.moments(fold)
        if not scores:
            return Fitted(base, weight, None, base)
        assert moments is not None, "they are those of the same scores"
        missing = base if self.probability else float(moments.mean[0])
        labelled = Labelled.together([part for number, part in sorted(scores.items()) if number != fold])
        maps = labelled.maps(self.scale_without(fold), 1.0 if fold == EVERYBODY else weight / self.of("answers", fold))
        return Fitted(base, weight, maps, missing)


def _own(
    columns: LogColumns, fitted: Mapping[int, Fitted], table: _Table, read: _Read, threshold: float
) -> OwnScore | None:
    """The gate on the score, in its unit; None of a log without."""
    maps = fitted[EVERYBODY].maps
    if columns.score_name is None or maps is None:
        return None
    brier = {name: total / read.sums["known"] for name, total in read.sums["where_known"].items()}
    of_maps = {name: brier[name] for name in maps}
    stated = table.census["certain"] if table.probability else 0
    brier = {"constant": brier["constant"], **of_maps}
    sums = {"said": "known_weight_score", "accepted": "known_weight_accepted"}
    means = {name: table.of(column) / table.of("known_weight") for name, column in sums.items()}
    best = simplest_best(of_maps)
    rules = {fold: one.maps[best].rule(threshold) for fold, one in fitted.items() if one.maps is not None}
    missing = {fold: one.base >= threshold for fold, one in fitted.items()}
    maps = {name: dataclasses.replace(one, scale=one.scale.in_unit(columns.score_unit)) for name, one in maps.items()}
    times = 100.0 if columns.score_unit else 1.0
    low, high = -table.census["low"].value * times, table.census["high"].value * times
    return OwnScore(columns.score_name, threshold, maps, best, brier, low, high, means, rules, missing, stated)


class _Read(NamedTuple):
    """Reads results from the sums."""

    sums: State
    units: UnitSums
    seed: int

    def measures(self, name: str, placements: Placements, probability: bool) -> Measures:
        """How well a prediction ranks, and if it is a probability, how well it is calibrated."""
        cells = self.units.cells([f"one {name}", "one", f"zero {name}", "zero", f"own {name}"])
        totals = totals_of(cells)
        over_all = share_of(cells, lambda sums: _placed(sums, totals, placements.auroc), placements.auroc, self.seed)
        within = self._share([f"pairs {name}", "pairs"], ratio) if self._total("pairs") else None
        if not probability:
            return Measures(over_all, within, None, None)
        gaps = [f"gap {name} {i}" for i in range(BINS)]
        return Measures(
            over_all, within, self._share([f"error {name}", "weight"], ratio), self._share([*gaps, "weight"], mean_gap)
        )

    def _share(self, columns: list[str], statistic: Any) -> Estimate:
        cells = self.units.cells(columns)
        return share_of(cells, statistic, float(statistic(cells.totals())), self.seed)

    def _total(self, name: str) -> float:
        return float(self.units.cells([name]).totals()[0])

    def compared(self) -> dict[str, Estimate]:
        """Brier scores where the score is known, and how much higher that of the score as it is.

        `difference` is that to the constant's, `correction` that to Platt's map on other people.
        """
        names = ("score", "constant", "difference", PLATT, "correction")
        cells = _of_those(self.units.cells([*(f"known {name}" for name in names), "known", "known rows"]))
        return dict(zip(names, means_of(cells, np.array([1.0, 1.0, np.inf, 1.0, np.inf]), self.seed), strict=True))

    def by_answers(self, names: tuple[str, ...], pair: Pair) -> list[Part]:
        """Brier scores by the number of answers that had been seen."""
        parts = []
        for i, (low, high) in enumerate(SEEN):
            answers, people = int(self._total(f"seen {i}")), int(self.sums["seen_people"][i])
            if not answers:
                continue
            weight = self._total(f"weight {i}")
            brier = {name: float(self.sums["seen"][name][i]) / weight for name in names}
            cells = _of_those(self.units.cells([f"gain {i}", f"weight {i}", f"seen {i}"]))
            difference = means_of(cells, np.array([np.inf]), self.seed)[0] if people > 1 else None
            parts.append(Part(low, high, answers, people, brier, difference))
        return parts

    def costs(self, names: tuple[str, ...], most: float, better: str) -> dict[str, Costs]:
        """What gates would have cost, beside the constants, of which one is the better."""
        kinds = ("cost", *CONSTANTS)
        columns = [*(f"{kind} {name}" for kind in kinds for name in names), "gate"]
        means = means_of(self.units.cells(columns), np.repeat([most, np.inf, np.inf], len(names)), self.seed)
        of = {kind: dict(zip(names, means[i * len(names) :], strict=False)) for i, kind in enumerate(kinds)}
        gate, offers, wrong = self._total("gate"), self.sums["offers"], self.sums["wrong"]
        return {
            name: Costs(
                offers[name] / gate,
                wrong[name] / offers[name] if offers[name] else math.nan,
                of["cost"][name],
                of[better][name],
                {constant: of[constant][name] for constant in CONSTANTS},
            )
            for name in names
        }

    def people(
        self, log: Divided, predictor: Predictor, platt: ScoreMap | None, table: _Table, threshold: float
    ) -> list[Any]:
        """Everybody, by number."""
        columns = self.sums["people"].columns
        belief = Belief(columns["mean"], columns["variance"])
        known = Beliefs(predictor.populations["everybody"], belief, self.sums["log_odds"] / table.of("answers"))
        counts = columns["answers"].astype(np.int64)
        shares = columns["accepted"] / columns["answers"]
        return described(log.numbers[columns["person"]], counts, shares, known, platt, threshold)


def _placed(
    sums: Float64[np.ndarray, "*resamples 5"], totals: Float64[np.ndarray, "5"], auroc: float
) -> Float64[np.ndarray, "*resamples"]:
    """AUROC from the mean placements of accepted and of rejected offers, each among those of the data.

    That is of first order (Obuchowski 1997); with their own pairs it is exact without one person.
    """
    one, ones, zero, zeros, own = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(one / ones + zero / zeros - auroc + (totals[-1] - own) / (ones * zeros))


def _of_those(cells: Cells | Resampled) -> Cells | Resampled:
    """Without the people whose last column is 0, and without that column."""
    if isinstance(cells, Resampled):
        return Resampled(cells.sums[:-1], cells.replicates[:, :-1], cells.number)
    assert isinstance(cells.units, np.ndarray), "units of sums are dense"
    return Cells.of_units(cells.units[cells.units[:, -1] > 0, :-1])
