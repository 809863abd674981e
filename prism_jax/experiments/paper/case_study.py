"""One step as the gate sees it: the fast pass, the slow pass, the gate and the label, and the stream around it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prism_jax.evaluation.merged.states import stored
from prism_jax.evaluation.policy_rows import EvaluationData, least_acceptance
from prism_jax.experiments.paper.drawing import legend_outside
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, Study

MEASURES = {
    "p_need": Measure("p_need", "Calibrated probability that help is needed.", digits=3),
    "p_accept": Measure("p_accept", "Calibrated probability that the offer would be accepted.", digits=3),
    "threshold": Measure("τ", "The least p_accept at which the gate opens.", digits=3),
    "decision": Measure("decision", "What the gate decides on these signals, and what was right."),
}
RULE = (
    "Chosen by rule: of the judged test steps at which the slow pass turned a wrong decision into a right one, that "
    "where its p_accept is farthest from τ; if there is none, of those at which the gate rightly offers after a "
    "silence, that where p_accept is farthest; else of all judged steps. The first of a tie."
)
WORDS = {True: "offer", False: "silence"}


def make(study: Study) -> ExperimentResult:
    """Shows the signals, the threshold and the label of the chosen step."""
    data = study.at()
    step = choose(data)
    lines = [_pass(data, step, thinking) for thinking in _passes(data, step)]
    kinds = ("need", "accept") if data.has_need else ("accept",)
    labels: dict[str, Number | str] = {f"p_{kind}": Number(_label(data, step, kind)) for kind in kinds}
    lines.append(Line("label", {**labels, "decision": WORDS[_right(data, step)]}, "what was right"))
    point = study.point
    words = f"{story(data, step)} {RULE}".replace("\n", " ")
    note = f"{words} C_FA = {point.c_fa:g}, C_FN = {point.c_fn:g}, margin {point.margin:g}."
    measures = {key: measure for key, measure in MEASURES.items() if data.has_need or key != "p_need"}
    title = f"Case study: {_place(data, step)}"
    sheet = Sheet("case_study", title, "stage", measures, tuple(lines), f"{note} On {study.source}.")
    return ExperimentResult((sheet,), lambda figure: _draw(figure, data, step))


def choose(data: EvaluationData) -> int:
    """The index of the step that `RULE` chooses."""
    group, distance = next(pair for pair in _groups(data) if pair[0].any())
    return int(np.argmax(np.where(group, distance, -1.0)))


def _groups(data: EvaluationData) -> list[tuple[np.ndarray, np.ndarray]]:
    """The groups of steps of which `RULE` takes the first that has any, each with the distance that it compares."""
    offer = data.decide("dynamic", "calibrated").offer
    stream = data.steps.numbered("stream")[1]  # the steps of a stream stand together, in their order (`Scores.steps`)
    silent_before = np.append(False, (stream[1:] == stream[:-1]) & ~offer[:-1])
    groups = [(silent_before & _opening(data, offer), _distance(data, "fast")), (data.judged, _distance(data, "fast"))]
    if data.slow:
        fast, both = data.decide("dynamic", "calibrated"), _margin(data)
        wrong = offer != (data.counted(fast).gold == 1)
        mended = wrong & (both.offer == (data.counted(both).gold == 1))
        groups.insert(0, (data.judged & both.slow & mended, _distance(data, "slow")))
    return groups


@stored
class Case(NamedTuple):
    """Which stream has the step that `RULE` chooses of some steps; merging takes that of the steps of both.

    The steps of a stream may stand in parts that follow each other, so the ends of the part are kept, too.
    """

    streams: tuple[str, ...]  # by group: the stream of the step
    distances: tuple[float, ...]  # its distance; -1 where the group has no step
    first: str  # stream of the first step
    opening: float  # distance of the first step if it is an offer that would rightly end a silence, else -1
    last: str  # stream of the last step
    silent: bool  # whether the last step is a silence

    @classmethod
    def of(cls, data: EvaluationData) -> Case:
        """The case of some steps."""
        offer, stream = data.decide("dynamic", "calibrated").offer, data.steps.stream
        measured = [np.where(group, distance, -1.0) for group, distance in _groups(data)]
        places = [int(np.argmax(distance)) for distance in measured]
        return cls(
            tuple(str(stream[place]) for place in places),
            tuple(float(distance[place]) for distance, place in zip(measured, places, strict=True)),
            str(stream[0]),
            float(_distance(data, "fast")[0]) if _opening(data, offer)[0] else -1.0,
            str(stream[-1]),
            not offer[-1],
        )

    def merge(self, other: Case) -> Case:
        """The case of the steps of both, those of `self` before."""
        streams, distances = list(self.streams), list(self.distances)
        if self.last == other.first and self.silent and other.opening > distances[-2]:
            streams[-2], distances[-2] = other.first, other.opening
        for group, distance in enumerate(other.distances):
            if distance > distances[group]:  # the first of a tie
                streams[group], distances[group] = other.streams[group], distance
        return Case(tuple(streams), tuple(distances), self.first, self.opening, other.last, other.silent)

    @property
    def stream(self) -> str:
        """The stream of the step."""
        return next(stream for stream, distance in zip(self.streams, self.distances, strict=True) if distance >= 0)


def story(data: EvaluationData, step: int) -> str:
    """What happened at a step, in two or three lines."""
    sentences = []
    for thinking in _passes(data, step):
        accept, threshold, offers = _decision(data, step, thinking)
        sign = "≥" if offers else "<"
        verb = "offers" if offers else "stays silent"
        sentences.append(f"The {thinking} pass {verb}: p_accept {accept:.3f} {sign} τ {threshold:.3f}.")
    sentences.append(f"Right was {'an offer' if _right(data, step) else 'silence'}.")
    return "\n".join(sentences)


def _opening(data: EvaluationData, offer: np.ndarray) -> np.ndarray:
    """Which judged steps have an offer that is right."""
    return data.judged & offer & (data.label("need") * data.label("accept") == 1)


def _distance(data: EvaluationData, thinking: str) -> np.ndarray:
    """How far the p_accept of a pass is from the threshold, at each step."""
    need, accept = (data.signal(f"{kind}_{thinking}", "calibrated") for kind in ("need", "accept"))
    return np.nan_to_num(np.abs(accept - least_acceptance("dynamic", need, data.point)), posinf=0.0)


def _margin(data: EvaluationData) -> Any:
    return data.decide("slow_on_margin", "calibrated")


def _passes(data: EvaluationData, step: int) -> tuple[str, ...]:
    return ("fast", "slow") if data.slow and _margin(data).slow[step] else ("fast",)


def _label(data: EvaluationData, step: int, kind: str) -> float:
    """The label of the candidate that the last pass at the step decided about."""
    return float(data.label(kind, _margin(data) if data.slow else None)[step])


def _right(data: EvaluationData, step: int) -> bool:
    return _label(data, step, "need") * _label(data, step, "accept") == 1


def _place(data: EvaluationData, step: int) -> str:
    return f"stream {data.steps.stream[step]}, step {int(data.steps.step[step])}"


def _decision(data: EvaluationData, step: int, thinking: str) -> tuple[float, float, bool]:
    """p_accept, the threshold and the decision of a pass at a step."""
    need, accept = (data.signal(f"{kind}_{thinking}", "calibrated") for kind in ("need", "accept"))
    threshold = least_acceptance("dynamic", need, data.point)
    offers = data.decide("dynamic" if thinking == "fast" else "slow_only", "calibrated").offer[step]
    return float(accept[step]), float(threshold[step]), bool(offers)


def _pass(data: EvaluationData, step: int, thinking: str) -> Line:
    """The signals of one pass at the step, and what the gate decides on them."""
    accept, threshold, offers = _decision(data, step, thinking)
    cells: dict[str, Number | str] = {
        "p_need": Number(float(data.signal(f"need_{thinking}", "calibrated")[step])),
        "p_accept": Number(accept),
        "threshold": Number(threshold),
        "decision": WORDS[offers],
    }
    return Line(f"{thinking} pass", cells, "signals")


def _draw(figure: Any, data: EvaluationData, step: int) -> None:
    """Above p_accept and the threshold along the stream, and below what was decided and what was right."""
    around = np.flatnonzero(data.steps.stream == data.steps.stream[step])
    around = around[np.argsort(data.steps.step[around], kind="stable")]
    x, place = data.steps.step[around], data.steps.step[step]
    need, accept = (data.signal(f"{kind}_fast", "calibrated")[around] for kind in ("need", "accept"))
    threshold = least_acceptance("dynamic", need, data.point)
    figure.set_figheight(4.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.axvline(place, color="black", alpha=0.12, linewidth=8, zorder=0)
    above.plot(x, accept, "-o", ms=3, color="#1f5f8b", label="p_accept, fast pass")
    if data.has_need:
        above.plot(x, need, ":", color="#7a7a7a", label="p_need, fast pass")
    above.plot(x, threshold, "-", color="#b23a48", label="τ(p_need): offers from here on" if data.has_need else "τ")
    if data.slow:
        margin = data.point.margin
        band = {"color": "#b23a48", "alpha": 0.12, "label": "within the margin, thinks"}
        above.fill_between(x, threshold - margin, threshold + margin, **band)
    if "slow" in _passes(data, step):
        slow, slow_threshold, _ = _decision(data, step, "slow")
        above.scatter([place], [slow], marker="D", color="#3b8f5a", zorder=3, label="p_accept, slow pass")
        above.scatter([place], [slow_threshold], marker="_", s=200, color="#3b8f5a", zorder=3, label="τ, slow pass")
    above.set_ylim(-0.02, 1.02)
    above.set_ylabel("probability")
    above.set_title(f"{_place(data, step)}\n{story(data, step)}", fontsize=8)
    _decisions(below, data, around, step)
    legend_outside(figure, above, below)


def _decisions(axes: Any, data: EvaluationData, here: np.ndarray, step: int) -> None:
    """A row of squares per pass and one of what was right, filled where that is an offer."""
    rows = {"fast pass": data.decide("dynamic", "calibrated").offer[here].astype(float)}
    deciding = _margin(data) if data.slow else None
    if deciding is not None:
        rows["with slow pass"] = deciding.offer[here].astype(float)
    rows["right"] = (data.label("need", deciding) * data.label("accept", deciding))[here]
    axes.axvline(data.steps.step[step], color="black", alpha=0.12, linewidth=8, zorder=0)
    for row, values in enumerate(rows.values()):
        for kind, filled in (("offer", values == 1), ("silence", values == 0)):
            colour = "#1f5f8b" if kind == "offer" else "white"
            axes.scatter(
                data.steps.step[here][filled], np.full(filled.sum(), row), marker="s", s=26, facecolor=colour,
                edgecolor="#1f5f8b", label=kind,
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("step of the stream")
