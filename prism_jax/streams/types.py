"""The data types: events, the steps at which the agent had to decide, and the candidates that it could have offered."""

from __future__ import annotations

import dataclasses
import reprlib
import sys
from collections.abc import Mapping

from prism_jax.runtime.files import check_text
from prism_jax.runtime.written import MOST_SECONDS, SECONDS, Label

RESPONSE_KEYS = ("Purpose", "Thoughts", "Proactive Task", "Response")
"""The keys of a response, in the order of writing: those of ProactiveBench. All values are strings."""
TASK = RESPONSE_KEYS[2]
"""The key of what is proposed."""
CONSTANT_OFFER = " an offer"
"""What the student's prompt and other models' are told of an offer without a text."""
SLOW_FIELDS = {
    "if_silent": "If silent:",
    "if_offered": "If offered:",
    "evidence": "Evidence:",
    "risk": "Risk:",
}
"""Maps each field of the slow pass, in the order of writing, to the name that the template writes before its text."""
MOST_CHARACTERS = 1_000_000
"""Longest text of an event, an offer, a response or a field of the slow pass."""
MOST_KEYS = 1_000
"""Largest number of variables that a step may record, and of fields of its slow pass."""


def _check_text(place: str, text: str, what: str, within: str = "") -> None:
    """Raises unless `text` holds words that UTF-8 can encode, and not too many."""
    if type(text) is str and 0 < len(text) <= MOST_CHARACTERS and text.isascii() and not text.isspace():
        return  # most are, and there are many of them
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{within}{place}: found {reprlib.repr(text)}, expected {what}")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{within}{place}: found {len(text)} characters, expected at most {MOST_CHARACTERS}")
    check_text(text, f"{within}{place}")


def _is_finite(value: object) -> bool:
    """Whether `value` is a finite number that a double can hold; a JSON integer may be larger."""
    if type(value) is float:
        return abs(value) <= sys.float_info.max
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _check_keys(place: str, values: Mapping[str, object]) -> None:
    if len(values) > MOST_KEYS:
        raise ValueError(f"{place}: found {len(values)} keys, expected at most {MOST_KEYS}")
    if not (keys := "".join(values)).isascii():
        check_text(keys, place)


def _check_unit(place: str, value: float | None, what: str) -> None:
    """Raises unless `value` is None or a finite number in [0, 1]."""
    if value is None or (type(value) is float and 0.0 <= value <= 1.0):
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{place}: found {value!r}, expected {what} in [0, 1] or null")


def _check_votes(place: str, votes: tuple[bool, ...]) -> None:
    for i, vote in enumerate(votes):
        if not isinstance(vote, bool):
            raise ValueError(f"{place}[{i}]: found {vote!r}, expected true or false")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """One thing the user did.

    Raises ValueError naming the field, for a time or a text that is not as described, or a text without words.
    """

    time: float  # time in seconds, from an origin that is the same for the whole stream; at most `MOST_SECONDS` from 0
    # Description of what happened, of at most `MOST_CHARACTERS`. Untrusted: it may contain anything that UTF-8 can
    # encode.
    text: str
    time_text: str | None = None  # the time as its source wrote it, for prompts that show it so; None where not kept

    def __post_init__(self) -> None:
        if not _is_finite(self.time):
            raise ValueError(f"time: found {reprlib.repr(self.time)}, expected a finite number of seconds")
        if abs(self.time) > MOST_SECONDS:
            raise ValueError(f"time: found {self.time:g}, expected {SECONDS}")
        _check_text("text", self.text, "what happened, in words")
        if self.time_text is not None:
            _check_text("time_text", self.time_text, "text or null")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One offer that could be made at a step, and its outcome.

    Raises ValueError naming the field, for a value out of range, for a label on an offer that was not made, or for a
    propensity that contradicts the log (docs/maths.md, section 4, positivity).
    """

    # the offer as the prompt shows it; None means the constant "an offer", where no particular one was proposed
    text: str | None = None
    # what the system at hand would say where the prompt shows the constant: judges judge it, and no prompt shows it
    proposal: str | None = None
    y_accept: Label | None = None  # acceptance label in [0, 1]; None where it was not observed
    votes: tuple[bool, ...] = ()  # raw votes of the annotators; true = would accept this offer
    # A, whether the offer was made when the stream was recorded; None where nothing was logged
    logged: bool | None = None
    propensity: float | None = None  # e = Pr(A = 1 | everything the logging policy saw), in (0, 1]; None where unknown
    response: str | None = None  # text that the assistant wrote with the offer: the target of response training
    # q_a, the teacher's probability that the offer would be accepted; None without a teacher
    teacher_accept: float | None = None
    p_accept_true: float | None = None  # Pr(accept | what the prompt shows, intervene); simulator only
    p_both_true: float | None = None  # Pr(need and accept | what the prompt shows, intervene); simulator only

    def __post_init__(self) -> None:
        for name in ("text", "proposal", "response"):
            if (value := getattr(self, name)) is not None:
                _check_text(name, value, "text or null")
        if self.text is not None and self.proposal is not None:
            raise ValueError(
                f"proposal: found {reprlib.repr(self.proposal)} beside a text, expected it with the constant offer only"
            )
        _check_unit("y_accept", self.y_accept, "a label")
        for name in ("propensity", "teacher_accept", "p_accept_true", "p_both_true"):
            _check_unit(name, getattr(self, name), "a probability")
        _check_votes("votes", self.votes)
        if self.logged is not None and not isinstance(self.logged, bool):
            raise ValueError(f"logged: found {self.logged!r}, expected true, false or null")
        if self.propensity == 0.0:
            raise ValueError("propensity: found 0, expected above 0: inverse propensities need every offer possible")
        if self.propensity == 1.0 and self.logged is False:
            raise ValueError("propensity: found 1 on an offer that was not made (logged is false)")
        if self.logged is False and self.y_accept is not None:
            raise ValueError(f"y_accept: found {self.y_accept!r}, expected null where the offer was not made")

    @property
    def said(self) -> str | None:
        """What the user would be told, which judges judge: the text, or the proposal; None where nobody wrote one."""
        return self.proposal if self.text is None else self.text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A moment at which the agent had to decide, right after the user did `event`.

    Raises ValueError naming the field, for a value out of range.
    """

    event: int  # index in the stream of the newest event the agent has seen; every earlier event is visible too
    # offers, at least one; a step without particular offers has one `Candidate` whose text is None
    candidates: tuple[Candidate, ...] = (Candidate(),)
    y_need: Label | None = None  # need label in [0, 1]; None where it was not judged
    votes: tuple[bool, ...] = ()  # raw votes of the annotators on silence; true = wanted none of the offers
    teacher_need: float | None = None  # q_n, the teacher's probability of need; None without a teacher
    p_need_true: float | None = None  # Pr(need | what the prompt shows); simulator only
    # reference texts for the fields of the slow pass (field name to text); from the simulator or a teacher
    rationale: Mapping[str, str] | None = None
    # variables that were recorded but are hidden from the prompt (name to value)
    recorded: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.event) is not int or self.event < 0:
            raise ValueError(f"event: found {self.event!r}, expected the index of an event")
        if not self.candidates:
            raise ValueError('candidates: found none, expected at least one (text null means "an offer")')
        _check_unit("y_need", self.y_need, "a label")
        _check_unit("teacher_need", self.teacher_need, "a probability")
        _check_unit("p_need_true", self.p_need_true, "a probability")
        _check_votes("votes", self.votes)
        if self.rationale is not None:
            _check_keys("rationale", self.rationale)
            for name, text in self.rationale.items():
                _check_text(name, text, "text", "rationale.")
        _check_keys("recorded", self.recorded)
        for name, value in self.recorded.items():
            if not _is_finite(value):
                raise ValueError(f"recorded.{name}: found {reprlib.repr(value)}, expected a finite number")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream:
    """One user's recorded session. Splits and resampling always keep it whole.

    Raises ValueError naming the field, for events that are not in time order, steps that are not in event order, or a
    step whose event does not exist.
    """

    id: str  # identifier, unique among the streams of a source
    events: tuple[Event, ...]  # events in time order, at least one
    steps: tuple[Step, ...] = ()  # steps in event order, at most one per event; none in a raw log
    domain: str = "unknown"  # subject area, for example coding, writing or life
    persona: str = "unknown"  # kind of user, where it is known
    curated: str = ""  # how curation selected the rows of this stream, in words; empty for a stream with all its rows

    def __post_init__(self) -> None:
        for name in ("id", "domain", "persona"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name}: found {value!r}, expected a non-empty string")
            check_text(value, name)
        if not isinstance(self.curated, str):
            raise ValueError(f"curated: found {self.curated!r}, expected text")
        check_text(self.curated, "curated")
        if not self.events:
            raise ValueError("events: found none, expected at least one")
        for i, (before, after) in enumerate(zip(self.events, self.events[1:], strict=False), start=1):
            if after.time < before.time:
                raise ValueError(
                    f"events[{i}].time: found {after.time}, expected at least {before.time}: events are in time order"
                )
        previous = -1
        for i, step in enumerate(self.steps):
            if not previous < step.event < len(self.events):
                raise ValueError(
                    f"steps[{i}].event: found {step.event}, expected above {previous} and below {len(self.events)} "
                    "(the previous step's event, the number of events)"
                )
            previous = step.event
