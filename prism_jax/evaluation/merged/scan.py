"""The first statistic: what there is, and histograms of the raw signals by label, from which the maps are fitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.decision import calibration as measures
from prism_jax.decision.arrays import log_odds
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import unit_keys
from prism_jax.evaluation import policy_rows, signals
from prism_jax.evaluation.facts import Facts, facts_of, shown_facts
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.evaluation.merged.histograms import Rows, labelled
from prism_jax.evaluation.merged.states import State, Streams, merge, stored
from prism_jax.evaluation.need import check_need
from prism_jax.evaluation.splits import CALIBRATION, TEST
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.labels import Readings, Signal, Thinking, read
from prism_jax.scores.units import first_rows

SIGNALS: tuple[tuple[Signal, Thinking], ...] = (
    ("need", "fast"),
    ("accept", "fast"),
    ("need", "slow"),
    ("accept", "slow"),
)
_CONSTANT = ("domain", "persona", "person", "split", "fold")
_UNFITTED = Calibration(None, SignalFit(measures.Temperature(1.0), 0.5, 1, 1.0))
MOST_VALUES = 10_000
"""Largest number of folds, splits or pairs of domain and persona, in some rows and in all."""
stored(Facts)


@dataclasses.dataclass(frozen=True)
class Scan:
    """The statistic; its state is a dictionary."""

    config: measures.CalibrationConfig | None  # the choice of the map; None where maps are known already
    exact: bool = False  # whether all rows fit into memory, so that maps are fitted on the rows themselves

    def init(self) -> State:
        """The state of no rows."""
        return {"rows": 0}

    def add(self, state: State, rows: Scores) -> State:
        """The state with some more rows, in which every step is whole.

        Raises:
          ScoresError: for too many splits, folds or groups to hold.
        """
        return merge(state, self._of(rows))

    def _of(self, rows: Scores) -> State:
        check_need(rows)
        parts = _by_split(rows)
        state: dict[str, Any] = structure_of(rows, parts) | {"fits": self._all_fits(rows, parts)}
        if (shown := shown_facts(rows)) is not None:
            state["shown"] = shown
        test = parts.get("" if rows.split is None else TEST)
        if test is not None:
            state["test"] = _test(test)
        if not self.exact:
            _check_number("fits", len(state["fits"]))
            _check_number("domain, persona", len(state.get("test", {}).get("groups", ())))
        return state

    def maps(self, rows: Scores) -> State:
        """What the maps alone are fitted from (`planning.calibrate`), of rows that are checked already."""
        check_need(rows)
        parts = _by_split(rows)
        return _columns(rows, parts) | {"fits": self._all_fits(rows, parts)}

    def _all_fits(self, rows: Scores, parts: Mapping[str, Scores]) -> State:
        """What the maps of the calibration split are fitted from, and of each fold of the rows to evaluate."""
        fits: dict[Any, Any] = {}
        if CALIBRATION in parts:
            fits[CALIBRATION] = self._fits(parts[CALIBRATION])
        test = parts.get("" if rows.split is None else TEST)
        if test is not None and test.fold is not None:
            for fold in sorted(set(test.fold.tolist())):
                fits[int(fold)] = self._fits(test.take(test.fold == fold))
        return fits

    def _fits(self, rows: Scores) -> State:
        """What maps are fitted from: the rows or a histogram of each signal by label, and the rate of the offers."""
        state: dict[str, Any] = {"rows": len(rows), "signals": {}}
        if self.config is None:
            return state
        for signal, thinking in SIGNALS:
            state["signals"][signal, thinking] = self._fit(rows, read(rows, signal, thinking, own_offers=False))
        slow = rows.p_accept_slow
        state["without_slow"] = len(rows) if slow is None else int(np.isnan(slow).sum())
        if rows.need_given_accept and not state["without_slow"]:
            # Which offer need is given by depends on whether all rows, of all parts, have slow signals.
            state["by_own_offers"] = self._fit(rows, read(rows, "need", "slow", own_offers=True))
        _, y, weight = read(rows.steps(), "accept", "fast").labelled()
        state["offers"] = {"count": len(y), "weight": float(weight.sum()), "labels": float((weight * y).sum())}
        return state

    def _fit(self, rows: Scores, readings: Readings) -> State:
        """What one map is fitted from; empty where no row has the signal."""
        assert self.config is not None, "maps are fitted by a config"
        if np.isnan(readings.p).all():
            return {}
        p, y, weight = readings.labelled()
        groups: dict[str, Any] = {"": slice(None)}
        if self.config.calibrator == "grouped":
            signals.check_domains(rows, self.config)
            assert readings.rows.domain is not None, "`check_domains` looked at it"
            domain = readings.rows.domain[readings.known]
            groups = {name: domain == name for name in set(domain.tolist())}
        as_fitted = Rows if self.exact else lambda p, *of: labelled(log_odds(p), *of)
        return {
            "count": len(y),
            "weight": float(weight.sum()),
            "squares": float((weight**2).sum()),
            "labels": float((weight * y).sum()),
            "certain": readings.labels.certain,
            "unweighted": readings.labels.unweighted,
            "histograms": {name: as_fitted(p[member], y[member], weight[member]) for name, member in groups.items()},
        }


def structure_of(rows: Scores, parts: Mapping[str, Scores] | None = None) -> State:
    """What tells whether the parts of a table go together (`planning.check_structure`); `parts` are those by split.

    Raises:
      ScoresError: for too many splits to hold.
    """
    parts = _by_split(rows) if parts is None else parts
    _check_number("splits", len(parts))
    return _columns(rows, parts) | {
        "streams": {name: streams_of(part) for name, part in parts.items()},
        "people": {name: _people(part) for name, part in parts.items() if part.person is not None},
    }


def _columns(rows: Scores, parts: Mapping[str, Scores]) -> State:
    return {
        "rows": len(rows),
        "columns": {tuple(rows.columns()): 1},
        "need": {rows.need_meaning: 1},
        "splits": {} if rows.split is None else {name: len(part) for name, part in parts.items()},
    }


def _by_split(rows: Scores) -> dict[str, Scores]:
    """The rows of each split; under no name those of a table without splits."""
    if rows.split is None:
        return {"": rows}
    names, number = rows.numbered("split")
    return {name: rows if len(names) == 1 else rows.take(number == place) for place, name in enumerate(names)}


def streams_of(rows: Scores) -> Streams:
    """The streams of some rows, with their constants and the range of their steps."""
    names, number = rows.numbered("stream")
    values = [getattr(rows, name) for name in _CONSTANT if getattr(rows, name) is not None]
    first_row = first_rows(number, len(names))
    texts = ("\0".join(str(value[row]) for value in values) for row in first_row.tolist())
    first, last = np.full(len(names), np.iinfo(np.int64).max), np.zeros(len(names), np.int64)
    np.minimum.at(first, number, rows.step)
    np.maximum.at(last, number, rows.step)
    return Streams.of(unit_keys(names), unit_keys(texts), first, last)


def _people(rows: Scores) -> Streams:
    """The people of some rows; what must be constant within a person is the fold."""
    assert rows.person is not None, "asked only where there are people"
    names, number = rows.numbered("person")
    fold = np.zeros(len(rows), np.int64) if rows.fold is None else rows.fold
    first = fold[first_rows(number, len(names))]
    return Streams.of(unit_keys(names), first.astype(np.uint64))


def _test(rows: Scores) -> State:
    """The facts of the rows that are evaluated, and which labels, weights and groups they have."""
    filled = rows if rows.has_need else rows.with_certain_need()
    facts = facts_of(filled)
    steps = filled.steps()
    passes = {"fast": None} | ({"slow": filled.steps("slow")} if facts.slow else {})
    parts = {
        # What is judged depends on whether there turns out to be a slow pass.
        name: policy_rows.EvaluationData(steps, _UNFITTED, OperatingPoint(), thought, False, candidates=filled)
        for name, thought in passes.items()
    }
    whole = {name: policy_rows.whole_of(part) for name, part in parts.items()}
    last = whole.get("slow", whole["fast"])
    return {
        "facts": facts,
        "several": int(last.several_candidates),
        "two": int(last.two_candidates),
        "labels": {name: _labels(part, whole[name]) for name, part in parts.items()},
        "groups": _pairs(steps),
        "time": int(steps.time is not None),
    }


def _labels(data: policy_rows.EvaluationData, whole: policy_rows.Whole) -> State:
    """In how many parts, or how many labels or judged steps, have what some results need, or what rules them out."""
    accepts = data.label("accept"), data.label("accept", data.everywhere_slow), data.of_judged(data.best_accept)
    return {
        "gold": int(whole.has_gold),
        "soft_gold": int(whole.soft),
        "soft": sum(int(((of != 0) & (of != 1) & ~np.isnan(of)).sum()) for of in (data.label("need"), *accepts)),
        "weighted": int((data.weight != 1).sum()),
    }


def _pairs(steps: Scores) -> dict[tuple[str, ...], int]:
    """How many steps have each pair of domain and persona, or each value of the one that there is."""
    columns = [steps.numbered(name) for name in ("domain", "persona") if getattr(steps, name) is not None]
    if not columns:
        return {(): len(steps)}
    names, codes = zip(*columns, strict=True)
    sizes = tuple(map(len, names))
    occurring, counts = np.unique(np.ravel_multi_index(codes, sizes), return_counts=True)
    places = zip(*(place.tolist() for place in np.unravel_index(occurring, sizes)), strict=True)
    return {
        tuple(texts[i] for texts, i in zip(names, place, strict=True)): count
        for place, count in zip(places, counts.tolist(), strict=True)
    }


def _check_number(name: str, number: int) -> None:
    if number > MOST_VALUES:
        raise ScoresError(f"found {number} different values, expected at most {MOST_VALUES}", name)
