"""The signals of one pass: raw and calibrated probabilities, and the candidate that they rank first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from prism_jax.decision.calibration import Map, Temperature, apply_map, apply_temperature


class Signals(NamedTuple):
    """Probabilities of one pass at one event."""

    raw_need: float  # Pr(need) as the model gives it, T = 1
    raw_accept: tuple[float, ...]  # Pr(accept) as the model gives it, one per candidate
    need: float  # calibrated Pr(need)
    accept: tuple[float, ...]  # calibrated Pr(accept), one per candidate
    best: int  # index of the candidate of highest raw p_accept, the first of a tie, as in `Scores.steps`

    @classmethod
    def unknown(cls, candidates: int) -> Signals:
        """The signals of an event whose reader gave no answer: NaN."""
        unknown = (math.nan,) * candidates
        return cls(math.nan, unknown, math.nan, unknown, 0)

    def record(self) -> dict[str, Any]:
        """The signals as keys of a decision record."""
        return {
            "raw": {"p_need": self.raw_need, "p_accept": self.raw_accept},
            "calibrated": {"p_need": self.need, "p_accept": self.accept},
        }


def signals_of(
    maps: Mapping[str, Map],
    thinking: str,
    p_need: Sequence[float],
    p_accept: Sequence[Sequence[float]],
    domains: Sequence[str],
) -> list[Signals]:
    """Calibrates the raw probabilities of one pass at several events; raises ValueError for one outside [0, 1].

    `maps` has the calibration map of each signal, such as `need_fast`; `thinking` names the pass, `fast` or `slow`.
    There may be no events. Each has at least one candidate, and the domain of its stream, which grouped maps ask for.
    """
    if not p_need:
        return []
    sizes = [len(row) for row in p_accept]
    flat = [p for row in p_accept for p in row]
    need, accept = _calibrated(maps[f"need_{thinking}"], maps[f"accept_{thinking}"], p_need, flat, sizes, domains)
    signals, start = [], 0
    for raw_need, raw, level, size in zip(p_need, p_accept, need, sizes, strict=True):
        best = 0 if size == 1 else max(range(size), key=raw.__getitem__)
        signals.append(Signals(raw_need, tuple(raw), level, tuple(accept[start : start + size]), best))
        start += size
    return signals


def _calibrated(
    need_map: Map,
    accept_map: Map,
    p_need: Sequence[float],
    p_accept: Sequence[float],
    sizes: Sequence[int],
    domains: Sequence[str],
) -> tuple[list[float], list[float]]:
    if isinstance(need_map, Temperature) and isinstance(accept_map, Temperature):
        # One call instead of two: for a single event, checks take most of its time.
        count = len(p_need)
        temperature = np.full(count + len(p_accept), accept_map.temperature)
        temperature[:count] = need_map.temperature
        both = np.asarray(apply_temperature(np.array([*p_need, *p_accept]), temperature)).tolist()
        return both[:count], both[count:]
    groups = [domain for domain, size in zip(domains, sizes, strict=True) for _ in range(size)]
    need = apply_map(need_map, np.asarray(p_need, np.float64), np.asarray(domains, object))
    return need.tolist(), apply_map(accept_map, np.asarray(p_accept, np.float64), np.asarray(groups, object)).tolist()


def probabilities(z: Sequence[float], stream: str) -> list[float]:
    """Raw probabilities sigmoid(z) of one stream's log-odds; raises ValueError naming the stream where z is NaN."""
    if any(map(math.isnan, z)):
        raise ValueError(f"stream {stream!r}: found log-odds that are not a number, expected the student's slots")
    p: Float64[np.ndarray, "z"] = np.exp(-np.logaddexp(0.0, -np.asarray(z, np.float64)))
    return p.tolist()
