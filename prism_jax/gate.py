"""From two raw probabilities to a decision: one object, which a small file holds.

    from prism_jax import Gate

    gate = Gate.fit("scores.jsonl", c_fa=1.0, c_fn=2.0)  # or Gate.load("exported")
    gate.save("gate.json")
    gate(p_need=0.8, p_accept=0.6).speak

It calibrates what a model says, compares the costs (docs/maths.md, section 2) and gives a reason. It reads one pass and
keeps what people's answers teach (`Gate.person`) in memory alone; budgets, the slow pass and what is kept of people are
the agent's (`agent`). Fitting and deciding load neither JAX nor Flax.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from etils import epath

from prism_jax.decision import arrays
from prism_jax.decision import gate as formulas
from prism_jax.decision.calibration import (
    OF_SCORES,
    CalibrationConfig,
    Calibrator,
    GroupedTemperature,
    Map,
    Rule,
    apply_map,
    map_from_dict,
    map_to_dict,
)
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.person import Belief
from prism_jax.decision.policies import POLICIES
from prism_jax.decision.score_maps import Scale, ScoreColumn, ScoreMap
from prism_jax.decision.verdict import Verdict
from prism_jax.people.in_memory import Person
from prism_jax.runtime.digests import DigestError, check_contents
from prism_jax.runtime.files import parse_object, read_bounded, read_object, write_json
from prism_jax.runtime.schema import Object, Words, decode, positive

if TYPE_CHECKING:
    from prism_jax.scores import Scores

FILE, FORMAT, SOURCE = "gate.json", "prism_jax gate 1", "`prism_jax.Gate.save`"
NEED_TARGETS = ("marginal", "given_accept")


@dataclasses.dataclass(frozen=True)
class Gate:
    """Calibration, costs and policy of one model.

    Attributes:
      point: Costs and policy; its slow trigger has no effect here.
      accept: Map from raw to calibrated p_accept; None takes it as it is.
      need: The same for p_need.
      need_target: What p_need estimates: need (`marginal`), or need given that the offer is accepted (`given_accept`).
      caution: What the evaluation that wrote it found cheaper on its test steps: the raw signals, or a constant.
      fitted: What `python -m prism_jax calibrate` fitted it on (`prism_jax.agent.fitted`); None where nobody says.
      score: The score of one's own that is decided on in place of the two probabilities, whose map is `accept`; what
        `python -m prism_jax evaluate` of a log of answers writes.
      people: What people's answers have taught (`person`), by name, in memory alone: no file has it.
    """

    point: OperatingPoint
    accept: Map | None = None
    need: Map | None = None
    need_target: str = "marginal"
    caution: str = ""
    fitted: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False)
    score: ScoreColumn | None = None
    people: dict[str, Belief] = dataclasses.field(default_factory=dict, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        arrays.check_choice("need_target", self.need_target, NEED_TARGETS)

    def __call__(self, p_need: Any = None, p_accept: Any = None, *, domain: Any = None, score: Any = None) -> Verdict:
        """Decides on raw probabilities, or on a score of one's own.

        Args:
          p_need: Raw probability that help is needed. None is a need that is certain, so that p_accept alone decides;
            a gate with a map of need refuses it.
          p_accept: Raw probability that an offer would be accepted, of the same shape or one that broadcasts.
          domain: Domain of each decision, or of all; needed where temperatures are per domain, ignored elsewhere.
          score: The score that the gate was fitted on, in its own unit, or an array of them; nothing else then.

        Raises:
          ValueError: for a score where probabilities are decided on, or the reverse; a probability outside [0, 1],
            shapes that do not broadcast, or domains that are missing; a score that is missing or outside its unit.
        """
        if self.score is not None or score is not None:
            return self._of_score(score, p_need, p_accept, domain)
        if p_accept is None:
            raise ValueError("p_accept: found none, expected the probability that an offer would be accepted")
        if p_need is None and self.need is not None:
            raise ValueError(
                "p_need: found none, expected the probability that help is needed, of which the gate has a map; where "
                "it is needed for certain, ask dataclasses.replace(gate, need=None)"
            )
        arrays.check_index(p_need=p_need, p_accept=p_accept, domain=domain)
        need = 1.0 if p_need is None else _calibrated("p_need", self.need, p_need, domain)
        accept = _calibrated("p_accept", self.accept, p_accept, domain)
        point = self.point
        arrays.check_broadcast(p_need=need, p_accept=accept)
        speak = formulas.decide(
            need, accept, point.c_fa, point.c_fn, point.policy, fixed_threshold=point.fixed_threshold
        )
        shape = np.shape(speak)
        needs = np.broadcast_to(np.asarray(need, np.float64), shape)
        threshold = POLICIES[point.policy].least_acceptance(needs, point.c_fa, point.c_fn, point.fixed_threshold)
        if shape == ():
            return Verdict(bool(speak), float(need), float(accept), float(threshold), point.policy)
        need, accept = (np.broadcast_to(value, shape) for value in (need, accept))
        return Verdict(np.asarray(speak), need, accept, np.asarray(threshold), point.policy)

    @property
    def rule(self) -> Rule:
        """From which score of one's own on the gate offers, or up to which."""
        assert self.score is not None, "it decides on one"
        return ScoreMap(self.score.scale, self.accept).rule(self._least)

    @property
    def _least(self) -> float:
        """The least probability of acceptance at which a gate without need offers."""
        return float(formulas.threshold(1.0, self.point.c_fa, self.point.c_fn))

    def _of_score(self, score: Any, *others: Any) -> Verdict:
        """Decides on a score of one's own."""
        if self.score is None:
            raise ValueError("score: found one, expected p_accept: the gate decides on probabilities")
        if score is None or any(other is not None for other in others):
            found = "found none" if score is None else "found it with probabilities"
            raise ValueError(f"score: {found}, expected score=NUMBER alone: the gate decides on {self.score.column}")
        values = self.score.read(score)
        p = ScoreMap(self.score.scale, self.accept)(np.atleast_1d(values))
        speak, threshold = self.rule.offers(np.atleast_1d(values)), self._least
        if np.ndim(values) == 0:
            return Verdict(bool(speak[0]), 1.0, float(p[0]), threshold, self.point.policy)
        return Verdict(speak, np.ones(len(p)), p, np.full(len(p), threshold), self.point.policy)

    def for_models(self, path: str) -> Gate:
        """The gate, where it decides on what models say; GateError naming its file for one on a score of one's own."""
        if self.score is not None:
            raise GateError(
                f"{path}: found a gate on the score {self.score.column!r}, which decides in Python, "
                f"Gate.load({path!r})(score=...), expected one on p_need and p_accept, such as `python -m prism_jax "
                "calibrate` writes"
            )
        return self

    def person(self, name: str) -> Person:
        """The gate in front of one person, whose answers move p_accept for them alone, as in the server's `/v1/decide`.

            ada = gate.person("ada")
            if verdict := ada(p_need, p_accept):
                ada.learn(verdict, accepted=offer())

        Raises:
          ValueError: for a name that is no text.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"person: found {name!r:.80}, expected a name as a text, such as 'ada'")
        return Person(name, self, self.point, self.people)

    @classmethod
    def at_costs(cls, *, c_fa: float, c_fn: float, policy: str = "dynamic") -> Gate:
        """The gate at these costs, on probabilities as they are: nothing is calibrated.

        Arguments and errors are those of `OperatingPoint`.
        """
        return cls(OperatingPoint(c_fa=c_fa, c_fn=c_fn, policy=policy))

    @classmethod
    def fit(
        cls,
        scores: Scores | str | os.PathLike[str] | None = None,
        *,
        c_fa: float,
        c_fn: float,
        policy: str = "dynamic",
        calibrator: Calibrator = OF_SCORES,
        p_need: Any = None,
        p_accept: Any = None,
        y_need: Any = None,
        y_accept: Any = None,
    ) -> Gate:
        """Fits the map of either signal on a scores table, or on columns of numbers.

            Gate.fit(p_need=frame["need"], p_accept=frame["accept"], y_accept=frame["taken"], c_fa=1.0, c_fn=2.0)

        Of a table these are the maps of the fast pass that `python -m prism_jax evaluate` fits, on the rows of the
        split "calibration"; without splits, or out of fold, on all rows. Of a table that says that it is calibrated,
        probabilities are taken as they are. Columns are lists, arrays, or series of pandas or polars, with one row per
        decision. A signal none of whose labels is known is taken as it is, so there may be no row yet.

        Args:
          scores: A scores table, or its file, folder or glob (docs/scores.md). Without a column of need, p_accept alone
            decides.
          p_need: Column of probabilities that help is needed; None, as a call without p_need, where it is certain.
          p_accept: Column of probabilities that an offer would be accepted.
          y_need: Whether help was needed: labels in [0, 1], or None or NaN where that is not known.
          y_accept: The same for whether the offer was accepted.
          c_fa: Cost C_FA > 0 of an offer that is not accepted.
          c_fn: Cost C_FN >= 0 of silence where help was needed and would have been accepted.
          policy: The rule that decides, such as dynamic, the gate (`prism_jax.decision.policies.DEPLOYABLE`).
          calibrator: The kind of map, such as penalised, scale and bias that few labels move little (`CALIBRATORS`).

        Raises:
          ValueError: naming file, row and column, for a bad table, columns of several lengths, or labels on which no
            map can be fitted. `penalised` takes labels of one class, in columns.

        Warns:
          CalibrationWarning: naming the signal, for a column of labels that are all unknown, a map at a bound,
            probabilities that are stated as certain, or labels of shown offers without propensities, of which a bias
            learns the log's selection.
        """
        from prism_jax.scores import Scores, ScoresError, located  # a decision needs no pyarrow
        from prism_jax.scores.joining import read_all
        from prism_jax.scores.labels import maps_of_columns, maps_of_table

        point, config = OperatingPoint(c_fa=c_fa, c_fn=c_fn, policy=policy), CalibrationConfig(calibrator)
        columns = {"p_accept": p_accept, "y_accept": y_accept, "p_need": p_need, "y_need": y_need}
        arrays.check_index(**columns)
        columns = {name: arrays.column(name, values) for name, values in columns.items() if values is not None}
        if scores is None:
            return cls(point, *maps_of_columns(columns, config))
        if columns:
            raise ValueError(f"scores: found a table beside {', '.join(columns)}, expected one or the other")
        if isinstance(scores, Scores):
            return cls(point, *maps_of_table(scores, config), scores.need_meaning)
        if not isinstance(scores, str | os.PathLike):
            found = f"found a {type(scores).__name__}, expected a scores table or its file"
            raise ValueError(f"scores: {found}; give columns by name, as in Gate.fit(p_accept=..., y_accept=...)")
        table = read_all(scores)
        try:
            return cls(point, *maps_of_table(table, config), table.need_meaning)
        except ScoresError as error:
            raise located(error, scores) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the gate as JSON, at once: a reader never sees a half-written file.

        Warns:
          UserWarning: where people have answered: the file does not hold what that taught (`people`).
        """
        if self.people:
            said = f"people: {path} does not hold what answers taught of {len(self.people)}; they are in memory alone"
            warnings.warn(said, stacklevel=2)
        write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The gate as plain values, as `save` writes them."""
        point = self.point
        return {
            "format": FORMAT,
            **{name: getattr(point, name) for name in ("c_fa", "c_fn", "policy", "fixed_threshold")},
            "need": None if self.need is None else map_to_dict(self.need),
            "accept": None if self.accept is None else map_to_dict(self.accept),
            "need_target": self.need_target,
            **({"caution": self.caution} if self.caution else {}),
            **({} if self.fitted is None else {"fitted": self.fitted}),
            **({} if self.score is None else {"score": self.score.to_dict(self.rule)}),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, c_fa: float | None = None, c_fn: float | None = None) -> Gate:
        """Reads a gate from what `save` wrote, from an exported directory, or from the workdir of an evaluation.

        Args:
          path: gate.json, a folder that holds one, a directory of `python -m prism_jax export`, or a workdir with
            calibration.json.
          c_fa: Cost C_FA in place of that of the file; required where there is none.
          c_fn: The same for C_FN.

        Raises:
          FileNotFoundError: naming the folder, if it holds none of these files.
          ValueError: naming file and key, for content that is not that of a gate, a file that was changed after the
            export, or costs that nobody states.
        """
        file = _file_in(epath.Path(path))
        data = read_bounded(file, GateError, expected=f"what {SOURCE} writes")
        tree = parse_object(data, file, SOURCE, GateError)
        try:
            if file.name == "prism.json":
                check_contents(file.parent, {file.name: data})  # because it decides what is offered
                tree = _of_run(tree, tree["calibration"], tree["decision"])
            elif file.name == "calibration.json":
                tree = _of_run(tree, tree, _decision_beside(file))
            return _gate(tree, str(file), {"c_fa": c_fa, "c_fn": c_fn})
        except KeyError as error:
            raise GateError(f"{file}: {error.args[0]}: found no such key, expected it") from None
        except (GateError, DigestError):
            raise
        except (TypeError, ValueError) as error:
            raise GateError(f"{file}: {error}") from None


class GateError(ValueError):
    """A file that holds no gate; the message names file and key, what was found and what was expected."""


def _file_in(path: epath.Path) -> epath.Path:
    """The file that says what a folder's gate is; a file itself."""
    if not path.is_dir():
        return path
    for name in (FILE, "prism.json", "calibration.json"):
        if (path / name).exists():
            return path / name
    raise FileNotFoundError(
        f"{path}: found none of {FILE}, prism.json and calibration.json, expected what {SOURCE}, "
        "`python -m prism_jax export` or `python -m prism_jax evaluate` writes"
    )


def _of_run(tree: Mapping[str, Any], maps: Mapping[str, Any], decision: Mapping[str, Any]) -> dict[str, Any]:
    """The maps of the fast pass, costs and policy of a run, as the keys of a gate."""
    keys = {key: decision[key] for key in ("c_fa", "c_fn", "policy", "fixed_threshold") if key in decision}
    keys |= {key: tree[key] for key in ("need_target",) if key in tree}
    defaults = {"policy": "dynamic", "fixed_threshold": 0.5, "need_target": "marginal"}
    return {"format": FORMAT, "need": maps["need_fast"], "accept": maps["accept_fast"], **defaults, **keys}


def _decision_beside(path: epath.Path) -> Mapping[str, Any]:
    """The costs and the policy of the run whose calibration this is; empty for scores of elsewhere."""
    config = path.parent / "config.json"
    if not config.exists():
        return {}
    decision = read_object(config, "`python -m prism_jax train`", GateError).get("decision")
    if not isinstance(decision, Mapping):
        raise GateError(f"{config}: decision: found {decision!r:.80}, expected an object with the costs")
    return decision


def _map(tree: Mapping[str, Any]) -> Map:
    """A map; what stands beside it in calibration.json is left to who reads that."""
    return map_from_dict(tree)[0]


_FITTED = Object({"model": str})


def _fitted(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    return decode(_FITTED, tree, "", ValueError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Score:
    """The score of a gate, as its file has it, with the rule that its map and costs make."""

    column: Words
    unit: Literal["", "%"]
    middle: float | None
    width: Annotated[float, positive]
    offer: Literal["at_least", "at_most", "always", "never"]
    value: float | None

    def __post_init__(self) -> None:
        if self.middle is None and self.scale != Scale().in_unit(self.unit):
            raise ValueError(f"width: found {self.width:g} of a probability (middle is null), expected 1, or 100 in %")

    @property
    def scale(self) -> Scale:
        return Scale(self.middle, self.width)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    """The keys of gate.json; those of the maps of other files are its, too."""

    format: Literal["prism_jax gate 1"]
    policy: str
    fixed_threshold: float
    need: Annotated[Mapping[str, Any], _map] | None
    accept: Annotated[Mapping[str, Any], _map] | None
    need_target: Literal["marginal", "given_accept"]
    c_fa: float | None = None
    c_fn: float | None = None
    caution: str = ""
    fitted: Annotated[Mapping[str, Any], _fitted] | None = None
    score: _Score | None = None


def _gate(tree: Mapping[str, Any], place: str, costs: Mapping[str, float | None]) -> Gate:
    """A gate of a file's keys, with other costs where they are given."""
    given = {
        name: cost.item() if isinstance(cost, np.generic) else cost for name, cost in costs.items() if cost is not None
    }
    file = decode(_File, {**tree, **given}, place, GateError)
    for name in costs:
        if getattr(file, name) is None:
            raise GateError(f"{place}: {name}: found no cost, expected one in the file or as an argument")
    point = OperatingPoint(file.c_fa, file.c_fn, policy=file.policy, fixed_threshold=file.fixed_threshold)
    gate = Gate(point, file.accept, file.need, file.need_target, file.caution, file.fitted)
    if file.score is None:
        return gate
    if point.policy != "dynamic" or gate.need is not None or isinstance(gate.accept, GroupedTemperature):
        raise ValueError(
            "score: found it with a map of need, of domains, or a policy, expected the policy dynamic alone"
        )
    gate = dataclasses.replace(gate, score=ScoreColumn(file.score.column, file.score.scale))
    rule = Rule(file.score.offer, file.score.value)
    if not given and not rule.is_near(gate.rule):
        raise ValueError(f"score.value: found {rule.in_words()}, expected {gate.rule.in_words()}, by its map and costs")
    return gate


def _calibrated(name: str, fitted: Map | None, p: Any, domain: Any) -> Any:
    """Calibrated probabilities; a number stays one."""
    if hasattr(p, "to_numpy"):  # a series of a data frame
        p = arrays.column(name, p)
    arrays.check_probability(name, p)
    if fitted is None:
        return arrays.as_float(p)
    if not isinstance(fitted, GroupedTemperature):
        return fitted(np.asarray(p) if isinstance(p, list | tuple) else p)
    if domain is None:
        raise ValueError("domain: found none, expected the domain of each decision: temperatures are per domain")
    values, domains = np.broadcast_arrays(np.asarray(p, np.float64), np.asarray(domain, object))
    return apply_map(fitted, values.ravel(), domains.ravel()).reshape(values.shape)[()]
