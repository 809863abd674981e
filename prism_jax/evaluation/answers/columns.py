"""Which columns of a file make an acceptance log: `person=user,time=shown_at,accepted=rating>=4,score=confidence`."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Literal, cast

from prism_jax.evaluation.answers.written_times import TIME_FORMATS

Comparison = Literal[">=", "<=", "==", "!=", ">", "<"]
_CONDITION = re.compile(r"(.+?)\s*(>=|<=|==|!=|>|<)\s*(.+)")


class LogError(ValueError):
    """An invalid log or description of its columns: one line with the place, what was found, what was expected.

    Messages hold numbers and the names of files and columns, and no text out of a row, which could be personal.
    """


@dataclasses.dataclass(frozen=True)
class Condition:
    """A column compared with a constant, such as `rating>=4` or `outcome==accepted`."""

    column: str
    comparison: Comparison
    constant: str


@dataclasses.dataclass(frozen=True)
class LogColumns:
    """The columns of a file that have a role in an acceptance log; no column has two."""

    person: str  # texts or integers that tell people apart
    accepted: str  # true/false or 1/0, or a condition such as `rating>=4`
    time: str | None = None  # seconds or timestamps of the offers; None takes the order of the file
    # any number that should rank accepted offers first; it need not be a probability; `confidence%` is one times 100
    score: str | None = None
    answered: str | None = None  # times of the answers, which may not lie before the offers
    # true/false or 1/0, or a condition: whether the offer was made; only offers that were made have answers
    logged: str | None = None
    propensity: str | None = None  # probabilities, above 0 and up to 1, with which the logging policy made the offers
    group: str | None = None  # texts or numbers of few kinds, such as the surface of the offer
    time_format: str | None = None  # one of `TIME_FORMATS`, where dates or numbers can be read in two ways
    # what --target says, a policy to compare: a condition on any column, or a column with its probability of an offer
    target: str | None = None

    def __post_init__(self) -> None:
        if self.time_format not in (None, *TIME_FORMATS):
            raise LogError(f"time_format: found {self.time_format!r}, expected {' or '.join(TIME_FORMATS)}")
        roles: dict[str, str] = {}
        for role, column in self.roles().items():
            if not column.strip(" %"):
                raise LogError(f"columns: found no name for {role}, expected {role}=COLUMN")
            if column in roles:
                raise LogError(
                    f"columns: found the column {column!r} as {roles[column]} and as {role}, expected two columns"
                )
            roles[column] = role

    def roles(self) -> dict[str, str]:
        """What was said of each role: a column, or a condition on one."""
        said = {role: getattr(self, role) for role in ROLES}
        return {role: column for role, column in said.items() if column is not None}

    @property
    def score_unit(self) -> str:
        """`%` where the score is a probability times 100, else nothing."""
        return "%" if self.score is not None and self.score.endswith("%") else ""

    @property
    def score_name(self) -> str | None:
        """The score without its unit."""
        return self.score and self.score.removesuffix("%").strip()


ROLES = tuple(field.name for field in dataclasses.fields(LogColumns) if field.name not in ("time_format", "target"))
"""Of columns."""


EXAMPLES: dict[str, LogColumns] = {
    "copilot": LogColumns(person="person", time="time", score="confidence", accepted="accepted"),
    "coauthor": LogColumns(person="person", time="time", score="max_log_prob", accepted="accepted"),
    "distraction": LogColumns(person="person", time="time", accepted="distraction<4"),
}
"""The columns of three public logs, by the name of their file (docs/acceptance_logs.md).

The confidence of copilot is a product's own, coauthor's largest log-probability is no probability of acceptance, and
distraction has no score at all: there, an interruption that distracted little counts as accepted.
"""


def parse_columns(items: str | Iterable[str], time_format: str | None = None, target: str | None = None) -> LogColumns:
    """Reads `person=COLUMN,accepted=COLUMN[,time=COLUMN…]`, as one text or in parts of the form ROLE=COLUMN.

    Everything after the first "=" is the column's name.

    Raises:
      LogError: for a part of another form, an unknown role, a role given twice, or one that is missing.
    """
    chosen: dict[str, str] = {}
    for item in items.split(",") if isinstance(items, str) else items:
        role, equals, column = (part.strip() for part in item.partition("="))
        if not equals:
            raise LogError(f"columns: found {item!r}, expected ROLE=COLUMN with a role of {', '.join(ROLES)}")
        if role not in ROLES:
            raise LogError(f"columns: found the role {role!r}{did_you_mean(role, ROLES)}, expected {', '.join(ROLES)}")
        if role in chosen:
            raise LogError(f"columns: found {role} twice, expected it once")
        chosen[role] = column
    missing = [role for role in ("person", "accepted") if role not in chosen]
    if missing:
        raise LogError(f"columns: found no {missing[0]}, expected {missing[0]}=COLUMN")
    return LogColumns(**chosen, time_format=time_format, target=target)


def split_condition(accepted: str, names: Sequence[str]) -> Condition | None:
    """The condition that `accepted` states; None if it is the name of a column."""
    if accepted in names:
        return None
    match = _CONDITION.fullmatch(accepted)
    return Condition(match[1], cast(Comparison, match[2]), match[3]) if match else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
