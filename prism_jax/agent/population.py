"""Fits the parameters of the person layer to the answers in an agent's records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from prism_jax.agent.people import ACCEPTED
from prism_jax.agent.personal import Prediction, prediction_from
from prism_jax.agent.records_file import RecordsError, parse_record, prediction_in
from prism_jax.decision.arrays import sigmoid
from prism_jax.decision.calibration import fit_platt
from prism_jax.decision.person import Population, clipped_log_odds
from prism_jax.people.exports import FORMAT
from prism_jax.people.layer import fit_population
from prism_jax.runtime.files import check_absent, encode_json, read_lines, write_bytes


class _Answer(NamedTuple):
    """An answered offer."""

    prediction: Prediction
    accepted: bool


def fit_from_records(logs: Sequence[Iterable[dict[str, Any]]], out: str, place: str) -> None:
    """Fits a population to everybody's answers and writes it as JSON.

    The logs of records are in the order in which their answers came, and `place` is what messages call them.

    Raises:
      ValueError, OSError: in one line, for records that cannot be read or that teach nothing; nothing is written then.
    """
    check_absent(out)
    answers = [answer for log in logs for answer in answers_in(log)]
    names = sorted({answer.prediction.person for answer in answers})
    kinds = len({answer.accepted for answer in answers})
    if len(names) < 2 or kinds < 2:
        raise ValueError(
            f"{place}: found {len(answers)} answers of {len(names)} people and {kinds} kinds, "
            "expected answers of two people, some accepted and some not"
        )
    population = fit(answers)
    if population.scale < 0:
        raise ValueError(
            f"{place}: found a scale of {population.scale:.3g}, expected at least 0: the p_accept of these "
            "records ranks offers the wrong way round"
        )
    write_bytes(out, encode_json({"format": FORMAT, **population._asdict()}))
    shown = ", ".join(f"{name} {value:.3g}" for name, value in population._asdict().items())
    print(f"{len(answers):,} answers of {len(names):,} people: {shown}")


def fit(answers: Sequence[_Answer]) -> Population:
    """The population of highest prequential likelihood on p_accept as Platt's map corrects it.

    So a new person is met by the corrected p_accept, and nothing is lost at the first offer. The answers of a person
    stand in the order in which they came.
    """
    codes = {name: code for code, name in enumerate(sorted({answer.prediction.person for answer in answers}))}
    person = np.array([codes[answer.prediction.person] for answer in answers])
    y = np.array([float(answer.accepted) for answer in answers])
    z = clipped_log_odds([answer.prediction.content for answer in answers])
    platt = fit_platt(sigmoid(z), y)
    population = fit_population(platt.of_log_odds(z), y, person, calibrated=True)
    return population._replace(scale=population.scale * platt.scale, bias=population.scale * platt.bias)


def read_records(path: epath.PathLike) -> Iterator[dict[str, Any]]:
    """The records of a file; RecordsError names the line that is none."""
    for number, line in read_lines(path, RecordsError, "the records of an agent"):
        place = f"{path}:{number}"
        record = parse_record(line, place)
        if record["kind"] == "decision":
            prediction_in(record, place)
        yield record


def answers_in(log: Iterable[dict[str, Any]]) -> list[_Answer]:
    """The answered offers of named people in a log of records, in the order of the answers."""
    made, answers = {}, []
    for record in log:
        if record["kind"] == "decision":
            if (prediction := prediction_from(record)) is not None:
                made[record["offer"]] = prediction
        elif record["offer"] in made:
            answers.append(_Answer(made.pop(record["offer"]), record["outcome"] == ACCEPTED))
    return answers
