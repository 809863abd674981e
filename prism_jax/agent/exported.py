"""Reads `prism.json` of an exported directory: where the slots are, the calibration, the operating point.

Belongs to the machine that deploys, so it imports nothing of training. Weights and tokenizer are the reader's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from etils import epath

from prism_jax.decision import thinking
from prism_jax.decision.calibration import Map, Temperature, map_from_dict
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import NEED_TARGETS, Gate
from prism_jax.runtime.digests import EXPORT as SOURCE
from prism_jax.runtime.digests import check_contents, is_sha256
from prism_jax.runtime.files import parse_object, read_bounded
from prism_jax.runtime.schema import Loose, Object, decode, positive, some

SIGNALS = ("need_fast", "accept_fast", "need_slow", "accept_slow")
_SLOW = SIGNALS[2:]
THINKING = "thinking"
"""Key of the calibration that says what the slow pass does."""
MARGINAL = "marginal"
"""What p_need estimates where an export does not say."""


class ExportedError(ValueError):
    """An exported directory that cannot be used; the message names file and key, what was found and expected."""


class Thinking(NamedTuple):
    """What the slow pass does (docs/maths.md, section 12)."""

    moves: thinking.Moves  # how far it moves the calibrated log-odds
    tokens: float  # mean tokens of a slow pass, above 0


@dataclasses.dataclass(frozen=True)
class _Numbers(Loose):
    """Moves and tokens, beside others such as how many steps they were fitted on."""

    accept: float
    need: float
    both: float
    tokens: Annotated[float, positive] | None

    def thinking(self) -> Thinking | None:
        """What they say; None where nobody says how many tokens it takes."""
        moves = thinking.Moves(self.accept, self.need, self.both)
        thinking.check_moves(moves)
        return None if self.tokens is None else Thinking(moves, self.tokens)


def thinking_from(tree: Any) -> Thinking | None:
    """Reads the numbers `accept`, `need`, `both` and `tokens`; ValueError, naming it, for one that is none."""
    return decode(_Numbers, tree, THINKING, ValueError).thinking()


@dataclasses.dataclass(frozen=True)
class Exported:
    """The content of `prism.json`."""

    slots: Mapping[str, Any]  # the prompt's texts and token ids, as `Template.describe` gives them
    maps: Mapping[str, Map]  # the calibration map of each signal, by its name in `SIGNALS`
    point: OperatingPoint  # costs, margin and policy that the model was trained for
    thinking: Thinking | None  # gives the value of a slow pass before it runs; None if the export does not say
    writing: Mapping[str, Any] | None  # budgets of generated text, None if not given
    writes_responses: bool  # whether the model was trained to write responses; True if the export does not say
    # SHA-256 of `model` (the digests of all files, weights and tokenizer among them), `calibration` and `config` (slots
    # and operating point), each 64 hexadecimal digits
    fingerprints: Mapping[str, str]
    need_target: str = MARGINAL  # what p_need estimates, one of `NEED_TARGETS`; `marginal` if the export does not say
    base_sha256: str | None = None  # digest of the base, for adapters without it
    # prompts, with the log-odds that the exported student gives them: `ids` and `log_odds` each; empty in older exports
    sample: Sequence[Mapping[str, Any]] = ()
    is_probe: bool = False  # whether the directory holds a probe (`probe`) instead of a student

    @property
    def has_slow_pass(self) -> bool:
        """Whether the model was trained to think: the calibration then has maps of the slow pass's signals."""
        return "need_slow" in self.maps


def read_exported(folder: epath.PathLike, expect_digest: str | None = None) -> Exported:
    """Reads and checks `prism.json` of an exported directory; `load_reader` compares all files with their digests.

    `expect_digest` is the SHA-256 of `digests.json`, as `export` printed it; None believes the list.

    Raises:
      ValueError: naming file and key, for content that is not that of an export, a `prism.json` that was changed after
        it, or another `digests.json` than expected.
    """
    folder = epath.Path(folder)
    path = folder / "prism.json"
    data = read_bounded(path, ExportedError, expected=f"what {SOURCE} writes")
    tree = parse_object(data, path, SOURCE, ExportedError)
    digest = check_contents(folder, {path.name: data}, expect_digest)  # because it decides what is offered
    file = decode(_File, tree, str(path), ExportedError)
    return Exported(
        slots=file.slots,
        maps={name: fitted for name in SIGNALS if (fitted := getattr(file.calibration, name)) is not None},
        point=file.decision,
        thinking=file.calibration.thinking,
        writing=file.writing,
        writes_responses=file.responses,
        need_target=file.need_target,
        base_sha256=file.base_sha256,
        is_probe=file.probe,
        sample=file.sample,
        fingerprints={
            "model": digest,
            "calibration": fingerprint(tree["calibration"]),
            "config": fingerprint([tree["slots"], tree["decision"]]),
        },
    )


def _alone(tree: Mapping[str, Any]) -> Map:
    """A map without other keys."""
    fitted, rest = map_from_dict(tree)
    for key in rest:
        raise ValueError(f"{key:.40}: found an unknown key, expected those of the map alone")
    return fitted


def _plain(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        fingerprint(tree)
    except ValueError:
        raise ValueError("found a number that is not finite, expected what a template describes") from None
    return tree


def _digest(text: str) -> str:
    if not is_sha256(text):
        raise ValueError(f"found {text!r:.80}, expected 64 hexadecimal digits")
    return text


_PROMPT = Object({"ids": Annotated[tuple[int, ...], some], "log_odds": float})


def _prompt(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    return decode(_PROMPT, tree, "", ValueError)


_Map = Annotated[Mapping[str, Any], _alone]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Calibration:
    """The map of each signal: both of the fast pass, and both or neither of the slow one."""

    need_fast: _Map
    accept_fast: _Map
    need_slow: _Map | None = None
    accept_slow: _Map | None = None
    thinking: Annotated[_Numbers, _Numbers.thinking] | None = None

    def __post_init__(self) -> None:
        for name, other in (_SLOW, _SLOW[::-1]):
            if getattr(self, name) is None and getattr(self, other) is not None:
                raise ValueError(f"{name}: found no such key beside {other}, expected the map of this signal")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    """The keys of prism.json."""

    format: Annotated[Literal[1], "1: export the run again"]
    slots: Annotated[Mapping[str, Any], _plain]
    probability: Any
    calibration: _Calibration
    decision: OperatingPoint
    dynamic: Any
    checkpoint: Any
    temperatures: Any = None
    writing: Mapping[str, Any] | None = None
    responses: bool = True
    need_target: Literal["marginal", "given_accept"] = "marginal"
    probe: bool = False
    base_sha256: Annotated[str, _digest] | None = None
    sample: tuple[Annotated[Mapping[str, Any], _prompt], ...] = ()


def fits(gate: Gate, model: str, name: str | None) -> bool:
    """Whether a gate may stand before the model of a fingerprint, or decision model of a name, at whatever address."""
    of = gate.fitted
    return of is None or of["model"] == model or (name is not None and of.get("decision_model") == name)


def with_gate(exported: Exported, gate: Gate, name: str | None = None) -> Exported:
    """The same model with the maps, costs and policy of a gate, as one that was calibrated where it is served.

    `name` is that of a decision model.

    Raises:
      ExportedError: for a gate that was fitted on another model.
    """
    model = exported.fingerprints["model"]
    if gate.fitted is not None and not fits(gate, model, name):
        cure = "remove the gate's key fitted" if name is None else f"set its fitted.decision_model to {name!r}"
        raise ExportedError(
            f"--gate: found maps that were fitted on the model {gate.fitted['model']:.12}, expected those of "
            f"{model:.12}: `python -m prism_jax calibrate` fits them; where both are one model, {cure}"
        )
    maps = {"need_fast": gate.need or Temperature(1.0), "accept_fast": gate.accept or Temperature(1.0)}
    return dataclasses.replace(
        exported,
        maps=maps,
        point=gate.point,
        thinking=None,
        need_target=gate.need_target,
        fingerprints={**exported.fingerprints, "calibration": fingerprint(gate.to_dict())},
    )


def need_target_from(tree: Mapping[str, Any]) -> str:
    """Reads what p_need estimates, `marginal` where nothing is said; raises ValueError for any but `NEED_TARGETS`."""
    target = tree.get("need_target", MARGINAL)
    if target not in NEED_TARGETS:
        raise ValueError(f"need_target: found {target!r:.80}, expected one of {', '.join(NEED_TARGETS)}")
    return target


def fingerprint(value: Any) -> str:
    """SHA-256 of plain data, the same for equal data: of its JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


def check_slots(exported: Exported, template: Mapping[str, Any], path: epath.PathLike) -> None:
    """Checks that a template reads the slots that the model was trained with.

    `template` is what `Template.describe` gives for the one in use; `path` is the exported directory.

    Raises:
      ExportedError: naming the first key that differs.
    """
    if difference := _difference(exported.slots, template, "slots"):
        raise ExportedError(f"{epath.Path(path) / 'prism.json'}: {difference}")


def _difference(written: Any, template: Any, place: str) -> str | None:
    if isinstance(written, Mapping) and isinstance(template, Mapping):
        for key in [*written, *(key for key in template if key not in written)]:
            if key not in template:
                return f"{place}.{key}: found a key that the template does not have, expected {', '.join(template)}"
            if key not in written:
                return f"{place}.{key}: found no such key, expected {template[key]!r:.80}, as the template has it"
            if difference := _difference(written[key], template[key], f"{place}.{key}"):
                return difference
        return None
    if written != template:
        return f"{place}: found {written!r:.80}, expected {template!r:.80}, as the template and its tokenizer have it"
    return None
