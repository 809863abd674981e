"""Fits the parameters of the person layer to the answers in an agent's records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from prism_jax.decision.arrays import sigmoid
from prism_jax.decision.calibration import fit_platt
from prism_jax.people.exports import FORMAT
from prism_jax.people.layer import Population, fit_population
from prism_jax.policy.people import ACCEPTED
from prism_jax.policy.personal import Stated, log_odds
from prism_jax.policy.records_file import RecordsError, parse_record, stated_in
from prism_jax.runtime.files import check_absent, encode_json, read_lines, write_bytes


class _Answer(NamedTuple):
    """An answered offer."""

    stated: Stated
    accepted: bool


def fit_from_records(files: Sequence[str], out: str) -> None:
    """Fits a population to everybody's answers and writes it as JSON.

    Args:
      files: Files of records, in the order in which their answers came.
      out: The file to write.

    Raises:
      ValueError, OSError: in one line, for records that cannot be read or that teach nothing; nothing is written then.
    """
    check_absent(out)
    answers = [answer for one in files for answer in read_answers(one)]
    names = sorted({one.stated.person for one in answers})
    kinds = len({one.accepted for one in answers})
    if len(names) < 2 or kinds < 2:
        raise ValueError(
            f"{', '.join(files) or 'records'}: found {len(answers)} answers of {len(names)} people and {kinds} kinds, "
            "expected answers of two people, some accepted and some not"
        )
    found = fit(answers)
    if found.scale < 0:
        raise ValueError(
            f"{', '.join(files)}: found a scale of {found.scale:.3g}, expected at least 0: the p_accept of these "
            "records ranks offers the wrong way round"
        )
    write_bytes(out, encode_json({"format": FORMAT, **found._asdict()}))
    shown = ", ".join(f"{name} {value:.3g}" for name, value in found._asdict().items())
    print(f"{len(answers):,} answers of {len(names):,} people: {shown}")


def fit(answers: Sequence[_Answer]) -> Population:
    """The population of highest prequential likelihood on p_accept as Platt's map corrects it.

    So a new person is met by the corrected p_accept, and nothing is lost at the first offer.

    Args:
      answers: Answers of a person stand in the order in which they came.
    """
    codes = {name: code for code, name in enumerate(sorted({one.stated.person for one in answers}))}
    person = np.array([codes[one.stated.person] for one in answers])
    y = np.array([float(one.accepted) for one in answers])
    z = log_odds([one.stated.content for one in answers])
    platt = fit_platt(sigmoid(z), y)
    found = fit_population(platt.scale * z + platt.bias, y, person, calibrated=True)
    return found._replace(scale=found.scale * platt.scale, bias=found.scale * platt.bias)


def read_answers(path: epath.PathLike) -> list[_Answer]:
    """The answered offers of named people in a file of records, in the order of the answers.

    Raises:
      RecordsError: naming the line that is not a record.
      OSError: if the file cannot be read.
    """
    path, made, found = epath.Path(path), {}, []
    for number, line in read_lines(path, RecordsError, "the records of an agent"):
        place = f"{path}:{number}"
        record = parse_record(line, place)
        if record["kind"] == "decision":
            if (stated := stated_in(record, place)) is not None:
                made[record["offer"]] = stated
        elif record["offer"] in made:
            found.append(_Answer(made.pop(record["offer"]), record["outcome"] == ACCEPTED))
    return found
