"""Splits of whole streams into train, validation, calibration and test: every stream is in exactly one of them.

The assignment depends only on the seed and on the streams' ids and domains, not on the order of the list. It is
stratified by domain: streams are ordered by domain, shuffled within each domain, and drawn at equal distances.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Sequence

from prism_jax.streams.types import Stream


@dataclasses.dataclass(frozen=True)
class Splits:
    """Disjoint sets of streams, each sorted by id; only `validation` may be empty."""

    train: tuple[Stream, ...]
    calibration: tuple[Stream, ...]  # on which temperatures and thresholds are fitted
    test: tuple[Stream, ...]
    validation: tuple[Stream, ...] = ()  # not used for training; their loss chooses the best checkpoint


def folds(streams: Sequence[Stream], folds: int, fold: int, *, calibration: float = 0.25, seed: int = 0) -> Splits:
    """Splits for fold number `fold`, from 0, of `folds`, at least 2; over all folds every stream is tested once.

    The folds' sizes differ by at most one, over all streams and within each domain. `calibration` is a share of the
    other folds' streams, in (0, 1); rounded to at least one stream. Raises ValueError in one line, for an argument out
    of range, an id used twice, or a split left empty.
    """
    if folds < 2:
        raise ValueError(f"folds: found {folds}, expected at least 2")
    if not 0 <= fold < folds:
        raise ValueError(f"fold: found {fold}, expected 0 to {folds - 1} (folds = {folds})")
    laid_out = _lay_out(streams, f"{seed} fold")
    test = laid_out[fold::folds]
    drawn, train = for_calibration(
        [stream for i, stream in enumerate(laid_out) if i % folds != fold], calibration, seed
    )
    return _splits(
        train, drawn, test, f"use fewer folds than {folds}, lower calibration = {calibration}, or add streams"
    )


def for_calibration(streams: Sequence[Stream], share: float = 0.25, seed: int = 0) -> tuple[list[Stream], list[Stream]]:
    """Draws a share of streams, at least one, for calibration; returns them and the others, which train.

    ValueError in one line for a share that is not between 0 and 1.
    """
    _check_share("calibration", share)
    return _draw(streams, _count(share, len(streams)), f"{seed} calibration")


def with_validation(splits: Splits, share: float, *, seed: int = 0) -> Splits:
    """Moves a share of the training streams to `validation`; the other splits stay the same.

    The share lies in (0, 1), and is rounded to at least one stream; 0 moves none. Raises ValueError in one line, when
    the share is out of range, or when no training stream is left.
    """
    if share == 0:
        return splits
    _check_share("validation", share)
    # The salt determines which streams are drawn: another wording would be another split.
    drawn, train = _draw(splits.train, _count(share, len(splits.train)), f"{seed} held out")
    if not train:
        raise ValueError(
            f"split train: found no streams beside {len(drawn)} for validation, expected at least one; "
            f"lower validation = {share}"
        )
    ordered = [tuple(sorted(side, key=lambda stream: stream.id)) for side in (train, drawn)]
    return dataclasses.replace(splits, train=ordered[0], validation=ordered[1])


def _check_share(name: str, share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"{name}: found {share}, expected a share between 0 and 1")


def _count(share: float, total: int) -> int:
    return max(1, round(share * total))


def _lay_out(streams: Sequence[Stream], salt: str) -> list[Stream]:
    """Streams ordered by domain and shuffled within each by a hash of salt and id, the same on every machine."""
    repeated_ids = [name for name, count in collections.Counter(stream.id for stream in streams).items() if count > 1]
    if repeated_ids:
        raise ValueError(f"streams: found id {repeated_ids[0]!r} twice, expected distinct ids")

    def key(stream: Stream) -> tuple[str, bytes]:
        return stream.domain, hashlib.sha256(f"{salt} {stream.id}".encode()).digest()

    return sorted(streams, key=key)


def _draw(streams: Sequence[Stream], count: int, salt: str) -> tuple[list[Stream], list[Stream]]:
    """Draws `count` streams (or all, if there are fewer), spread evenly over the domains; returns them and the rest."""
    laid_out = _lay_out(streams, salt)
    count = min(count, len(laid_out))
    # Middles of `count` equal stretches of the layout: distinct, because no stretch is shorter than one stream.
    places = {(2 * i + 1) * len(laid_out) // (2 * count) for i in range(count)}
    drawn = [stream for i, stream in enumerate(laid_out) if i in places]
    return drawn, [stream for i, stream in enumerate(laid_out) if i not in places]


def _splits(train: list[Stream], calibration: list[Stream], test: list[Stream], fix: str) -> Splits:
    """The three splits, sorted by id; raises an error that names an empty one."""
    sides = {"train": train, "calibration": calibration, "test": test}
    counts = ", ".join(f"{name} {len(side)}" for name, side in sides.items())
    for name, side in sides.items():
        if not side:
            raise ValueError(f"split {name}: found no streams ({counts}), expected at least one in each; {fix}")
    return Splits(**{name: tuple(sorted(side, key=lambda stream: stream.id)) for name, side in sides.items()})
