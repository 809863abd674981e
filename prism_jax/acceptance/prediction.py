"""The job of `prism_jax.people`: reads an acceptance log, predicts it from other people, prints and writes the results.

Files in the workdir: people.json with every number, and the tables people, by_answers and people_by_number as CSV and
Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float64

from prism_jax.acceptance.columns import LogColumns
from prism_jax.acceptance.logs import AcceptanceLog, read_log
from prism_jax.acceptance.measures import Measure, Measures, brier_difference, measure
from prism_jax.acceptance.own_score import SHOWN_PEOPLE, as_dicts, own_score, people_of, people_table, sentences
from prism_jax.acceptance.study import MEANINGS, Study, study
from prism_jax.evaluation.intervals import known
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.report.tables import DASH, number, over_units
from prism_jax.runtime.files import encode_json, write_files

SEEN = ((0, 0), (1, 4), (5, 19), (20, None))
"""Numbers of earlier answers of the person, from and to, that the second table compares."""
TRUTH = "The true probability, which knows every person's own rate."


def run_people(
    path: str,
    columns: LogColumns,
    context: Sequence[str],
    workdir: str,
    *,
    seed: int = 0,
    truth: Float64[np.ndarray, " rows"] | None = None,
    weighted: bool = False,
    threshold: float = 1 / 3,
) -> Mapping[str, Any]:
    """Runs the study of one log, CSV or Parquet, and returns what people.json holds.

    Args:
      path: Names the log.
      columns: Says which columns are which.
      context: Columns that were known at the moment of the offer.
      workdir: Folder for the results.
      seed: Seed of the folds and of the resampling.
      truth: True probability of each row of the file, where it is simulated.
      weighted: Whether fits and measures weigh answers by their clipped inverse propensities.
      threshold: The probability of acceptance from which on to offer; by default that of C_FN = 2 C_FA.

    Raises:
      ValueError, OSError: in one line, for a log that cannot be read or that teaches nothing.
    """
    log = read_log(path, columns, context)
    studied = study(log, seed, weighted=weighted)
    y, person = studied.accepted, studied.person
    predictions = dict(studied.predictions) | ({} if truth is None else {"truth": truth[studied.row]})
    plain = {"score"} if log.score is not None and not log.score_is_probability else set()
    # Folds differ in their constant by who is left out, which ranks nothing.
    ranking = {"constant": np.zeros(len(y))}
    results = {
        name: measure(
            p, y, person, probability=name not in plain, ranking=ranking.get(name), weight=studied.weight, seed=seed
        )
        for name, p in predictions.items()
    }
    by_seen = _by_seen(studied, seed)
    own = own_score(log, studied, columns.score, threshold, studied.weight)
    people = people_of(log, studied, own, threshold)
    tables = {
        "people": _results_table(log, studied, results),
        "by_answers": _seen_table(by_seen),
        "people_by_number": people_table(people, own, threshold),
    }
    value = {
        "log": {"rows": len(log), "answers": len(y), "people": len(log.names), "accepted": _accepted(studied)},
        "protocol": {
            "folds": studied.folds,
            "seed": seed,
            "weighted": weighted,
            "timed": log.timed,
            "context": list(context),
        },
        "populations": [population._asdict() for population in studied.populations],
        "rows": {name: _as_json(measured) for name, measured in results.items()},
        "by_answers": by_seen,
        "gate": {"threshold": threshold, "score": own and own.as_dict()},
        "people": as_dicts(people),
    }
    folder = epath.Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name}.{kind}": text for name, table in tables.items() for kind, text in _texts(table)}
    write_files({**files, folder / "people.json": encode_json(value)})
    print_all([tables["people"], tables["by_answers"], people_table(people, own, threshold, SHOWN_PEOPLE)])
    for sentence in [] if own is None else sentences(own):
        print(sentence)
    return value


def _texts(table: Table) -> list[tuple[str, bytes]]:
    return [("csv", table.to_csv().encode()), ("md", table.to_markdown().encode())]


def _as_json(found: Measures) -> dict[str, Any]:
    values: dict[str, Any] = {
        name: None if measured is None else measured.value for name, measured in found._asdict().items()
    }
    ranges = {
        name: None if measured is None else [known(measured.low), known(measured.high)]
        for name, measured in found._asdict().items()
    }
    return values | {"intervals": ranges}


def _accepted(found: Study) -> float:
    return float(np.average(found.accepted, weights=found.weight))


def _by_seen(found: Study, seed: int) -> list[dict[str, Any]]:
    """Brier scores of the rows of results, by how many answers of the person had been seen.

    The difference is that of the best row and the one that does not know the person, on the same answers.
    """
    with_person, without = ("context+person", "context") if "context" in found.predictions else ("person", "constant")
    parts = []
    for low, high in SEEN:
        seen = (found.seen >= low) & (found.seen <= (high if high is not None else np.inf))
        if not seen.any():
            continue
        brier = {
            name: float(np.average((p[seen] - found.accepted[seen]) ** 2, weights=found.weight[seen]))
            for name, p in found.predictions.items()
            if ((p >= 0) & (p <= 1)).all()
        }
        difference = brier_difference(
            found.predictions[with_person][seen],
            found.predictions[without][seen],
            found.accepted[seen],
            found.person[seen],
            found.weight[seen],
            seed,
        )
        people = len(np.unique(found.person[seen]))
        part = {"from": low, "to": high, "answers": int(seen.sum()), "people": people, "brier": brier}
        shown = (
            None
            if difference is None
            else {"value": difference.value, "interval": [known(end) for end in difference[1:]]}
        )
        parts.append(part | {"difference": {"row": with_person, "minus": without, "brier": shown}})
    return parts


def _results_table(log: AcceptanceLog, found: Study, results: Mapping[str, Measures]) -> Table:
    columns = (
        Column("AUROC", "Share of pairs of an accepted and a rejected offer that are ranked right."),
        Column("AUROC, within person", "The same over the pairs that belong to one person."),
        Column("Brier", "Mean squared error of the probability."),
        Column("ECE", "Expected calibration error in 15 equal bins."),
    )
    meanings = MEANINGS | {"truth": TRUTH}
    rows = tuple(
        Row(name, tuple(map(_shown, measured)), meanings[name], strong=name == "context+person")
        for name, measured in results.items()
    )
    note = (
        f"{len(found.accepted):,} answers of {len(np.unique(found.person)):,} people, "
        f"{_accepted(found):.1%} accepted. "
        f"{found.folds} folds of whole people; every prediction is made before its answer is seen. "
        f"{over_units(len(np.unique(found.person)), 'people')}."
    )
    if (found.weight != 1).any():
        note += " Fits and measures weigh answers by clipped inverse propensities."
    elif silent := int((~log.logged).sum()):
        note += f" Of shown offers only: {silent:,} rows whose offer was not made have no answer."
    if log.score is not None and (missing := int(np.isnan(log.score[found.row]).sum())):
        note += f" The score is missing on {missing:,} rows, which take the constant."
    if log.score is not None and not log.score_is_probability:
        note += " The score is no probability, so it has no Brier score and no ECE as it is."
    return Table("Who accepts", "prediction", columns, (Section("", rows),), note, mark="ours")


def _seen_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    names = list(parts[0]["brier"])
    pair = f"{parts[0]['difference']['row']} minus {parts[0]['difference']['minus']}"
    columns = (
        Column("answers", "Number of rows"),
        Column("people", "Number of people who gave them"),
        *(Column(name, f"Brier score. {MEANINGS.get(name, TRUTH)}") for name in names),
        Column(pair, "Difference of the two Brier scores on the same answers; below 0 the person layer gains."),
    )
    rows = []
    for part in parts:
        low, high = part["from"], part["to"]
        name = f"{low} or more" if high is None else (str(low) if low == high else f"{low} to {high}")
        cells = (*(_digits(part["brier"][column]) for column in names), _signed(part["difference"]["brier"]))
        rows.append(Row(name, (f"{part['answers']:,}", str(part["people"]), *cells)))
    title = "Brier score by how many answers of the person had been seen"
    note = "95 % intervals of the difference over people."
    return Table(title, "seen before", columns, (Section("", tuple(rows)),), note)


def _signed(found: Mapping[str, Any] | None) -> str:
    """A difference and its interval, each with its sign; a difference that rounds to 0 has none."""
    if found is None:
        return DASH
    ends = (found["value"], *(end for end in found["interval"] if end is not None))
    value, *interval = (("+" if end > 0 else "") + number(end, 3) for end in (round(end, 3) for end in ends))
    return f"{value} [{', '.join(interval)}]" if interval else value


def _shown(one: Measure | None) -> str:
    if one is None:
        return DASH
    return _digits(one.value) + ("" if np.isnan(one.low) else f" [{_digits(one.low)}, {_digits(one.high)}]")


def _digits(value: float) -> str:
    return f"{value:.3f}"
