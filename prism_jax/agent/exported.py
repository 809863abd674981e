"""Reads `prism.json` of an exported directory: where the slots are, the calibration, the operating point.

Belongs to the machine that deploys, so it imports nothing of training. Weights and tokenizer are the reader's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from prism_jax.decision import thinking
from prism_jax.decision.calibration import Map, Temperature, map_from_dict
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import NEED_TARGETS, Gate
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.runtime.digests import EXPORT as SOURCE
from prism_jax.runtime.digests import check_contents, is_sha256
from prism_jax.runtime.files import check_keys, parse_object, read_bounded

SIGNALS = ("need_fast", "accept_fast", "need_slow", "accept_slow")
_FAST, _SLOW = SIGNALS[:2], SIGNALS[2:]
_REQUIRED = ("format", "slots", "probability", "calibration", "decision", "dynamic", "checkpoint")
_OPTIONAL = ("temperatures", "writing", "responses", "need_target", "probe", "base_sha256", "sample")
THINKING = "thinking"
"""Key of the calibration that says what the slow pass does."""
FORMAT = 1
MARGINAL = "marginal"
"""What p_need estimates where an export does not say."""


class ExportedError(ValueError):
    """An exported directory that cannot be used; the message names file and key, what was found and expected."""


class Thinking(NamedTuple):
    """What the slow pass does (docs/maths.md, section 12)."""

    moves: thinking.Moves  # how far it moves the calibrated log-odds
    tokens: float  # mean tokens of a slow pass, above 0


def thinking_from(tree: Mapping[str, Any]) -> Thinking:
    """Reads the numbers `accept`, `need`, `both` and `tokens`; raises KeyError, TypeError or ValueError otherwise."""
    moves = thinking.Moves(float(tree["accept"]), float(tree["need"]), float(tree["both"]))
    thinking.check_moves(moves)
    tokens = float(tree["tokens"])
    if not 0 < tokens < math.inf:
        raise ValueError(f"tokens: found {tokens}, expected a finite number above 0")
    return Thinking(moves, tokens)


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
    check_keys(tree, (*_REQUIRED, *_OPTIONAL), str(path), ExportedError, optional=_OPTIONAL, source=SOURCE)
    if type(tree["format"]) is not int or tree["format"] != FORMAT:
        raise ExportedError(f"{path}: format: found {tree['format']!r}, expected {FORMAT}: export the run again")
    slots, decision = _section(path, tree, "slots"), _section(path, tree, "decision")
    try:
        point = from_config_dict(OperatingPoint, decision, f"{path}: decision")
    except ConfigError as error:
        raise ExportedError(str(error)) from error
    calibration = _section(path, tree, "calibration")
    responses, is_probe = _switch(path, tree, "responses", True), _switch(path, tree, "probe", False)
    return Exported(
        slots=slots,
        maps=_maps(path, calibration),
        point=point,
        thinking=_thinking(path, calibration),
        writing=_section(path, tree, "writing") if "writing" in tree else None,
        writes_responses=responses,
        need_target=_need_target(path, tree),
        base_sha256=_base(path, tree),
        is_probe=is_probe,
        sample=_sample(path, tree.get("sample", [])),
        fingerprints={
            "model": digest,
            "calibration": fingerprint(calibration),
            "config": fingerprint([slots, decision]),
        },
    )


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


def _switch(path: epath.Path, tree: Mapping[str, Any], key: str, default: bool) -> bool:
    value = tree.get(key, default)
    if type(value) is not bool:
        raise ExportedError(f"{path}: {key}: found {value!r:.80}, expected true or false")
    return value


def _base(path: epath.Path, tree: Mapping[str, Any]) -> str | None:
    digest = tree.get("base_sha256")
    if digest is not None and not is_sha256(digest):
        raise ExportedError(f"{path}: base_sha256: found {digest!r:.80}, expected 64 hexadecimal digits")
    return digest


def _sample(path: epath.Path, sample: Any) -> Sequence[Mapping[str, Any]]:
    try:
        for one in sample:
            ids, z = one["ids"], one["log_odds"]
            if not (ids and all(type(token) is int for token in ids) and type(z) in (int, float) and math.isfinite(z)):
                raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ExportedError(
            f"{path}: sample: found {sample!r:.80}, expected prompts with `ids` and `log_odds`"
        ) from None
    return tuple(sample)


def need_target_from(tree: Mapping[str, Any]) -> str:
    """Reads what p_need estimates, `marginal` where nothing is said; raises ValueError for any but `NEED_TARGETS`."""
    target = tree.get("need_target", MARGINAL)
    if target not in NEED_TARGETS:
        raise ValueError(f"need_target: found {target!r:.80}, expected one of {', '.join(NEED_TARGETS)}")
    return target


def _need_target(path: epath.Path, tree: Mapping[str, Any]) -> str:
    try:
        return need_target_from(tree)
    except ValueError as error:
        raise ExportedError(f"{path}: {error}") from None


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


def _section(path: epath.Path, tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(tree[key], dict):
        raise ExportedError(f"{path}: {key}: found {tree[key]!r:.80}, expected an object with keys")
    return tree[key]


def _thinking(path: epath.Path, calibration: Mapping[str, Any]) -> Thinking | None:
    """What the slow pass does; None where the export does not say, or not how many tokens it takes."""
    tree = calibration.get(THINKING)
    if tree is None or (isinstance(tree, dict) and "tokens" in tree and tree["tokens"] is None):
        return None
    try:
        return thinking_from(tree)
    except KeyError as error:
        raise ExportedError(
            f"{path}: calibration.{THINKING}.{error.args[0]}: found no such key, expected it"
        ) from error
    except (TypeError, ValueError) as error:
        raise ExportedError(f"{path}: calibration.{THINKING}: {error}") from error


def _maps(path: epath.Path, calibration: Mapping[str, Any]) -> dict[str, Map]:
    """The map of each signal: both of the fast pass, and both or neither of the slow one."""
    slow = [name for name in _SLOW if name in calibration]
    for name in (*_FAST, *(_SLOW if slow else ())):
        if name not in calibration:
            raise ExportedError(f"{path}: calibration.{name}: found no such key, expected the map of this signal")
    maps = {}
    for name, value in calibration.items():
        if name == THINKING:
            continue
        if name not in SIGNALS:
            raise ExportedError(
                f"{path}: calibration.{name}: found an unknown key, expected one of {', '.join(SIGNALS)}"
            )
        try:
            fitted, rest = map_from_dict(value, f"{path}: calibration.{name}")
        except ValueError as error:
            raise ExportedError(str(error)) from error
        if rest:
            raise ExportedError(f"{path}: calibration.{name}.{next(iter(rest))}: found an unknown key, expected none")
        maps[name] = fitted
    return maps
