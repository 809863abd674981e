"""What is fitted on calibration rows, in one piece or per fold, and calibration.json.

These are the map of every signal, and the moves and tokens of the slow pass.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Float64

from prism_jax.decision.calibration import (
    GroupedTemperature,
    Map,
    Temperature,
    apply_map,
    in_words,
    map_from_dict,
    map_to_dict,
)
from prism_jax.decision.thinking import Moves, check_moves
from prism_jax.runtime.files import parse_json, read_bounded, write_json
from prism_jax.runtime.schema import decode
from prism_jax.scores import Scores, ScoresError

SIGNALS = ("need_fast", "accept_fast", "need_slow", "accept_slow")


@dataclasses.dataclass(frozen=True)
class SignalFit:
    """One signal's fit on calibration rows.

    Attributes:
      map: The map from raw to calibrated probabilities.
      base_rate: Weighted mean label in [0, 1], the best constant prediction.
      count: Number of labels it was fitted on: steps for need, offers with an observed answer for acceptance.
      effective_count: (sum w)^2 / sum w^2 of their inverse-propensity weights; equal to `count` if all are equal.
      offer_rate: Weighted mean label of the offers that a policy would make, each step's candidate with the highest
        p_accept of the fast pass; None for need, and where no such offer has a label.
      certain: Number of labels whose probability was exactly 0 or 1; 0 in older files.
    """

    map: Map
    base_rate: float
    count: int
    effective_count: float
    offer_rate: float | None = None
    certain: int = 0

    def __post_init__(self) -> None:
        expected = {
            "base_rate": (0 <= self.base_rate <= 1, "a number in [0, 1]"),
            "count": (self.count >= 1, "at least 1"),
            "effective_count": (0 < self.effective_count < math.inf, "a finite number above 0"),
            "offer_rate": (self.offer_rate is None or 0 <= self.offer_rate <= 1, "a number in [0, 1] or null"),
            "certain": (0 <= self.certain <= self.count, "a number from 0 to count"),
        }
        for name, (right, words) in expected.items():
            if not right:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected {words}")

    @property
    def temperature(self) -> float | None:
        """T, where the map is one temperature."""
        return self.map.temperature if isinstance(self.map, Temperature) else None

    def to_dict(self) -> dict[str, Any]:
        """The fit in calibration.json: the map's keys beside the others."""
        numbers = {name: getattr(self, name) for name in _Numbers.__annotations__}
        return map_to_dict(self.map) | numbers


@dataclasses.dataclass(frozen=True)
class ThinkingFit:
    """What the slow pass does on calibration steps, by which its value is known before it runs (section 12).

    Attributes:
      moves: How far it moves the calibrated log-odds, as numbers.
      tokens: Mean tokens of a slow pass, above 0; None where the scores do not say.
      count: Number of steps that the moves were fitted on.
    """

    moves: Moves
    tokens: float | None
    count: int

    def __post_init__(self) -> None:
        check_moves(self.moves)
        if self.tokens is not None and not 0 < self.tokens < math.inf:
            raise ValueError(f"tokens: found {self.tokens}, expected a finite number above 0, or null")
        if self.count < 1:
            raise ValueError(f"count: found {self.count}, expected at least 1")

    def to_dict(self) -> dict[str, Any]:
        """The fit in calibration.json and prism.json."""
        return {**self.moves._asdict(), "tokens": self.tokens, "count": self.count}


@dataclasses.dataclass(frozen=True)
class Calibration:
    """One fit per signal and pass; None for a pass, and for need, that the scores do not have.

    Attributes:
      need_fast: Fit of the fast pass's need.
      accept_fast: Fit of its acceptance.
      need_slow: Fit of the slow pass's need.
      accept_slow: Fit of its acceptance.
      folds: For out-of-fold scores, the calibration of each fold's rows, fitted on the rows of the other folds; the
        four fits above are then those of all rows together. Empty otherwise.
      thinking: Moves and tokens of the slow pass; None without slow signals, and in older files.
      need_target: What p_need means in the fitted scores, one of `NEED_TARGETS`; `marginal` in files that do not say.
    """

    need_fast: SignalFit | None
    accept_fast: SignalFit
    need_slow: SignalFit | None = None
    accept_slow: SignalFit | None = None
    folds: Mapping[int, Calibration] = dataclasses.field(default_factory=dict)
    thinking: ThinkingFit | None = None
    need_target: str = "marginal"

    def fit(self, signal: str, thinking: str) -> SignalFit:
        """The fit of one signal, on all calibration rows.

        Raises:
          ValueError: for a signal or pass that was not calibrated.
        """
        fit = getattr(self, f"{signal}_{thinking}")
        if fit is None:
            raise ValueError(
                f"{signal}_{thinking}: found no calibration, expected scores whose calibration split has it"
            )
        return fit

    def calibrated(self, signal: str, thinking: str, rows: Scores) -> Float64[np.ndarray, "rows"]:
        """One signal's calibrated probabilities, NaN where the pass did not run.

        Raises:
          ScoresError: for a fold that was not calibrated, a missing column `domain` where temperatures are grouped, or
            scores whose p_need means something else.
          ValueError: for a pass that was not calibrated.
        """
        if signal == "need":
            self._check_need_target(rows)
        p = getattr(rows, f"p_{signal}_{thinking}")
        calibrated = np.full(len(rows), np.nan)
        for fits, member in self._parts(rows):
            mask = member & ~np.isnan(p)
            fitted = fits.fit(signal, thinking).map
            domain = rows.domain if isinstance(fitted, GroupedTemperature) else None
            if domain is None and isinstance(fitted, GroupedTemperature):
                raise ScoresError("found no such column, expected it: temperatures are per domain", "domain")
            if rows.calibrated is not None and fitted != Temperature(1.0):
                raise ScoresError("found true, expected no such column: maps take raw probabilities", "calibrated")
            if mask.all():
                return np.asarray(apply_map(fitted, p, domain))  # without a copy
            if mask.any():
                calibrated[mask] = apply_map(fitted, p[mask], None if domain is None else domain[mask])
        return calibrated

    def base_rates(self, signal: str, thinking: str, rows: Scores) -> Float64[np.ndarray, "rows"]:
        """The base rate of one signal that each row's calibration knows."""
        rates = np.empty(len(rows))
        for fits, member in self._parts(rows):
            rates[member] = fits.fit(signal, thinking).base_rate
        return rates

    def offer_rates(self, rows: Scores) -> Float64[np.ndarray, "rows"]:
        """`offer_rate` of each row's calibration."""
        rates = np.empty(len(rows))
        for fits, member in self._parts(rows):
            rates[member] = fits.offer_rate
        return rates

    def moves(self, rows: Scores) -> Moves | None:
        """The moves of the slow pass that each row's calibration knows, as arrays; None where one knows none."""
        moments = np.empty((len(Moves._fields), len(rows)))
        for fits, member in self._parts(rows):
            if fits.thinking is None:
                return None
            moments[:, member] = np.array(fits.thinking.moves, np.float64)[:, None]
        return Moves(*moments)

    def slow_tokens(self, rows: Scores) -> Float64[np.ndarray, "rows"] | None:
        """The expected tokens of a slow pass that each row's calibration knows; None where one knows none."""
        tokens = np.empty(len(rows))
        for fits, member in self._parts(rows):
            if fits.thinking is None or fits.thinking.tokens is None:
                return None
            tokens[member] = fits.thinking.tokens
        return tokens

    @property
    def identity(self) -> bool:
        """Whether the maps leave every probability as it is, as those of scores that are calibrated already."""
        fits = (getattr(part, name) for part in (self, *self.folds.values()) for name in SIGNALS)
        return all(fit is None or fit.map == Temperature(1.0) for fit in fits)

    @property
    def origin(self) -> str:
        """Words for what the maps were fitted on, if not on the calibration split; empty otherwise."""
        if self.identity:
            return "with probabilities as they are"
        return f"each of {len(self.folds)} folds calibrated on the others" if self.folds else ""

    @property
    def offer_rate(self) -> float:
        """The p_accept of the policy `need_only`: the acceptance rate of the offers that a policy would make.

        Falls back to the rate of all listed offers where no top-ranked offer has a label.
        """
        fit = self.accept_fast
        return fit.base_rate if fit.offer_rate is None else fit.offer_rate

    def in_words(self, signal: str, thinking: str) -> str:
        """The map of one signal in a few words; with folds, those of every fold."""
        maps = [fits.fit(signal, thinking).map for fits in self.folds.values()]
        if not maps:
            return in_words(self.fit(signal, thinking).map)
        temperatures = [fitted.temperature for fitted in maps if isinstance(fitted, Temperature)]
        if len(temperatures) == len(maps):
            return f"T = {min(temperatures):.3f} to {max(temperatures):.3f}, {len(maps)} folds"
        return "; ".join(dict.fromkeys(map(in_words, maps)))

    def temperature(self, signal: str, thinking: str) -> float | None:
        """T of one signal, where one temperature applies to all rows."""
        return None if self.folds else self.fit(signal, thinking).temperature

    def to_dict(self) -> dict[str, Any]:
        """The content of calibration.json."""
        fits = {name: getattr(self, name) for name in SIGNALS}
        tree: dict[str, Any] = {name: None if fit is None else fit.to_dict() for name, fit in fits.items()}
        if self.thinking is not None:
            tree["thinking"] = self.thinking.to_dict()
        if self.folds:
            tree["folds"] = {str(fold): fits.to_dict() for fold, fits in sorted(self.folds.items())}
        if self.need_fast is not None:
            tree["need_target"] = self.need_target
        return tree

    def pooled(self) -> Calibration:
        """The fits of all rows together, for scores from elsewhere."""
        return dataclasses.replace(self, folds={})

    def _check_need_target(self, rows: Scores) -> None:
        if rows.need_meaning != self.need_target:
            raise ScoresError(
                f"found {rows.need_meaning}, expected {self.need_target}, which the calibration was fitted on "
                "(marginal where it does not say); fit one on scores of the same meaning",
                "need_target",
            )

    def _parts(self, rows: Scores) -> Iterator[tuple[Calibration, Bool[np.ndarray, "rows"]]]:
        """Each calibration with the rows that it applies to."""
        if not self.folds:
            yield self, np.ones(len(rows), bool)
            return
        if rows.fold is None:
            raise ScoresError("found no such column, expected it: the calibration is per fold", "fold")
        for fold in sorted(set(rows.fold.tolist())):
            if fold not in self.folds:
                folds = ", ".join(map(str, sorted(self.folds)))
                raise ScoresError(f"found the fold {fold}, expected one that was calibrated: {folds}", "fold")
            yield self.folds[fold], rows.fold == fold


def write_calibration(path: str | os.PathLike[str], calibration: Calibration) -> None:
    """Writes calibration.json atomically."""
    write_json(path, calibration.to_dict())


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Reads what `write_calibration` wrote.

    Raises:
      ValueError: naming file and key, for broken JSON, a missing or unknown key, or a value out of range.
      OSError: if the file cannot be read.
    """
    expected = "a calibration.json that `python -m prism_jax evaluate` wrote"
    tree = parse_json(read_bounded(path, expected=expected), str(path))
    if isinstance(tree, dict) and "accept" in tree:
        anew = "without --calibration, evaluate fits maps anew; Gate.load decides by those of the gate"
        raise ValueError(f"{path}: found a gate, expected {expected}; {anew}")
    file = decode(_File, tree, str(path), ValueError)
    signals = _values(file) | {"folds": {int(fold): Calibration(**_values(of)) for fold, of in file.folds.items()}}
    return Calibration(**signals)


def _values(shape: Any) -> dict[str, Any]:
    return {field.name: getattr(shape, field.name) for field in dataclasses.fields(shape)}


@dataclasses.dataclass(frozen=True)
class _Numbers:
    """What stands beside the map of a signal."""

    base_rate: float
    count: int
    effective_count: float
    offer_rate: float | None = None
    certain: int = 0


def _signal(tree: Mapping[str, Any]) -> SignalFit:
    fitted, rest = map_from_dict(tree)
    return SignalFit(fitted, **_values(decode(_Numbers, rest, "", ValueError)))


@dataclasses.dataclass(frozen=True)
class _Thinking:
    """Moves of the slow pass, with how many tokens it takes."""

    accept: float
    need: float
    both: float
    tokens: float | None
    count: int

    def fit(self) -> ThinkingFit:
        return ThinkingFit(Moves(self.accept, self.need, self.both), self.tokens, self.count)


_Signal = Annotated[Mapping[str, Any], _signal]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Fold:
    """The calibration of the rows of a fold, as it stands in the file."""

    need_fast: _Signal | None
    accept_fast: _Signal
    need_slow: _Signal | None
    accept_slow: _Signal | None
    thinking: Annotated[_Thinking, _Thinking.fit] | None = None
    need_target: Literal["marginal", "given_accept"] = "marginal"

    def __post_init__(self) -> None:
        if self.need_fast is None and self.need_slow is not None:
            raise ValueError("need_fast: found null beside need_slow, expected both or neither")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File(_Fold):
    """The calibration of all rows, and that of each fold."""

    folds: Mapping[str, _Fold] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for fold, of in self.folds.items():
            if not (fold.isascii() and fold.isdecimal()):
                raise ValueError(f"folds.{fold:.40}: found another key than a number, expected a fold")
            if of.need_target != self.need_target:
                found = f"found {of.need_target}, expected {self.need_target}, as for all folds"
                raise ValueError(f"folds.{fold}.need_target: {found}")
