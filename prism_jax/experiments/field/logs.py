"""A log of answers as baselines read it: which columns say something of an offer, and its rows as scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Float, Int

from prism_jax.evaluation.answers.columns import EXAMPLES, LogColumns, LogError
from prism_jax.evaluation.answers.log_files import read_log_parts
from prism_jax.evaluation.answers.logs import AcceptanceLog, read_log
from prism_jax.experiments.field.interface import Log
from prism_jax.runtime.files import check_regular
from prism_jax.scores import Scores


class Layout(NamedTuple):
    """The columns of a log."""

    roles: LogColumns
    texts: tuple[str, ...] = ()  # columns whose words were known at the moment of the offer
    numbers: tuple[str, ...] = ()  # columns whose numbers were


_TELEMETRY = "comp_char_len document_length mean_alternative_log_prob mean_log_prob num_lines num_tokens"
LAYOUTS: dict[str, Layout] = {
    "copilot": Layout(
        EXAMPLES["copilot"],
        ("task", "typing", "prompt_tail", "offer"),
        (*_TELEMETRY.split(), "prompt_char_len", "prompt_end_pos", "quantile", "time_since_issued_ms", "confidence"),
    ),
    "coauthor": Layout(
        EXAMPLES["coauthor"],
        ("kind", "first_offer"),
        ("number", "temperature", "frequency_penalty", "offers", "latency_ms", "max_log_prob", "mean_words"),
    ),
    "distraction": Layout(EXAMPLES["distraction"], ("location", "activity", "purpose"), ("duration_s",)),
}
"""Three public logs by the name of their file (docs/acceptance_logs.md)."""


def read(path: str, roles: LogColumns | None = None) -> Log:
    """Reads a log; `roles` are the columns of one that is not in `LAYOUTS`, of which words and numbers stay unread.

    Offers that were not made are left out. LogError as of `read_log`; ValueError for a log without known roles.
    """
    check_regular(epath.Path(path), LogError, "a log of answers (.csv or .parquet)")
    layout = LAYOUTS.get(epath.Path(path).stem) if roles is None else Layout(roles)
    if layout is None:
        raise ValueError(f"log={path}: found no known layout ({', '.join(LAYOUTS)}), expected --columns, its roles")
    answers = read_log(path, layout.roles, layout.numbers, shown_only=layout.roles.logged is not None)
    texts: list[tuple[str, ...]] = [()] * len(answers)
    if layout.texts:
        tables = [table.to_pydict() for _, table in read_log_parts(path, lambda place, names: layout.texts)]
        columns = [[text or "" for table in tables for text in table[name]] for name in layout.texts]
        texts = list(zip(*columns, strict=True))
    numbers = [np.sign(column.values) * np.log1p(np.abs(column.values)) for column in answers.context]
    known = [np.where(np.isnan(column), np.nanmean(column), column) for column in numbers]
    return Log(answers, tuple(texts), np.stack(known, axis=1) if known else np.zeros((len(answers), 0)))


def steps_of(answers: AcceptanceLog) -> Int[np.ndarray, " rows"]:
    """The number of each row among those of its person, in the order of time."""
    order = answers.order
    person = answers.person[order]
    begins = np.searchsorted(person, person)
    steps = np.empty(len(order), np.int64)
    steps[order] = np.arange(len(order)) - begins
    return steps


def scores_of(
    log: Log,
    rows: Int[np.ndarray, " n"],
    p: Float[np.ndarray, " n"],
    *,
    split: str,
    fold: int,
    calibrated: bool = False,
) -> Scores:
    """Some rows of a log as a scores table without labels: a stream per person, a step per offer."""
    answers = log.answers
    columns = {
        "stream": names_of(answers)[answers.person[rows]],
        "step": steps_of(answers)[rows],
        "p_accept_fast": np.asarray(p, np.float64),
        "split": np.full(len(rows), split, object),
        "fold": np.full(len(rows), fold),
    }
    return Scores.from_columns(columns | ({"calibrated": np.ones(len(rows))} if calibrated else {}))


def names_of(answers: AcceptanceLog) -> np.ndarray:
    """What scores call the people: p1, p2 and so on, in the order in which the log first mentions them."""
    return np.array([f"{answers.unit[0]}{number}" for number in answers.numbers.tolist()], object)
