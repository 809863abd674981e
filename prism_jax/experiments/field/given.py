"""Anybody's out-of-fold scores as a baseline: a student's, an agent's, in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from prism_jax.experiments.field.interface import Baseline, Fold, Run
from prism_jax.experiments.field.material import Material
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.joining import read_all


def read_given(entries: Iterable[str], taken: Iterable[str]) -> list[Baseline]:
    """The baselines of entries NAME=FILE, whose names must not be `taken`; their labels are not read."""
    names, found = set(taken), []
    for entry in entries:
        name, _, path = entry.partition("=")
        if not name or not path or name in names:
            raise ValueError(f"scores: found {entry!r}, expected NAME=FILE with a new name")
        names.add(name)
        found.append(given(name, read_all(path)))
    return found


def given(name: str, scores: Scores) -> Baseline:
    """A baseline that looks its scores up: of models that did not see a step's stream."""

    def score(fold: Fold, run: Run) -> Scores:
        columns = {key: column for key, column in scores.columns().items() if key not in ("split", "fold")}
        rows = np.flatnonzero(np.isin(scores.stream.astype(str), [stream.id for stream in fold.test]))
        taken = {key: column[rows] for key, column in columns.items()}
        keys = set(zip(*(taken[key].tolist() for key in ("stream", "step", "candidate")), strict=True))
        for stream in fold.test:
            for number, step in enumerate(stream.steps):
                for index in range(len(step.candidates)):
                    if (stream.id, number, index) not in keys:
                        place = f"stream {stream.id!r}, step {number}, candidate {index}"
                        raise ScoresError(f"found no row for {place}, expected one for every offer", place=name)
        marks = {"split": np.full(len(rows), "test", object), "fold": np.full(len(rows), fold.number)}
        return Scores.from_columns({**taken, **marks})

    def misfit(source: Material) -> str:
        return "" if set(scores.stream.tolist()) & set(source.units) else "other streams"

    parts = [scores.stream.astype(str), scores.step, scores.candidate, scores.p_accept_fast]
    parts += [] if scores.p_need_fast is None else [scores.p_need_fast]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
    return Baseline(name, name, score, fitted=False, misfit=misfit, about=digest)
