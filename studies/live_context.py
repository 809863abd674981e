"""How do live decisions differ from evaluation's where streams outgrow the context?

    python -m studies live_context --workdir=runs/quickstart --context=96

Evaluation keeps, at every decision, the newest events that fit into the context. A live stream that would exceed it
drops old events until at most a share `keep` of the context is used, because every change of its beginning means
reading the rest again. This study reads the test streams of a trained run both ways, in the same context, without room
for written text, and decides on each by the run's calibration and operating point. Means have 95 % intervals over
streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from absl import flags
from jaxtyping import Float64

from prism_jax.agent.live import Live, LiveConfig
from prism_jax.decision import gate, metrics
from prism_jax.decision.calibration import apply_map
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation.fits import Calibration, read_calibration
from prism_jax.experiments.intervals import show_interval
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.streams import Candidate, Stream
from prism_jax.student.pages import page_bytes
from prism_jax.student.prompting.template import Template
from prism_jax.student.scoring.fast import score_streams
from prism_jax.student.scoring.student import Student
from prism_jax.training.run import reopen_run, trained_params
from prism_jax.training.workdir import Workdir

KEEPS = (1.0, 0.75, 0.5, 0.25)
COLUMNS = (
    Column("cost", "Realised cost per step."),
    Column("difference", "Realised cost minus that of evaluation, paired by step."),
    Column("decisions changed", "Share of the steps at which the decision differs from evaluation's."),
    Column("moved p_need", "Mean distance of the calibrated p_need from evaluation's."),
    Column("moved p_accept", "Mean distance of the calibrated p_accept of the first offer from evaluation's."),
)

Key = tuple[str, int]
Raw = Mapping[Key, tuple[float, tuple[float, ...]]]
"""Raw p_need and p_accept of every offer, by stream and step."""


class LiveDecisions(NamedTuple):
    """What was decided at every step, in the order of the streams."""

    need: Float64[np.ndarray, " n"]  # calibrated p_need
    accept: Float64[np.ndarray, " n"]  # calibrated p_accept of the first offer
    offers: Float64[np.ndarray, " n"]  # whether an offer is made
    cost: Float64[np.ndarray, " n"]  # realised cost


def read_offline(student: Student, streams: Sequence[Stream], context: int) -> Raw:
    """Reads every step as evaluation does."""
    rows = score_streams(student, streams, split="test", fold=0, context=context, batch=16)
    signals: dict[Key, tuple[float, tuple[float, ...]]] = {}
    for row in rows:
        key = row["stream"], row["step"]
        _, earlier = signals.get(key, (0.0, ()))
        signals[key] = row["p_need_fast"], (*earlier, row["p_accept_fast"])
    return signals


def read_live(student: Student, streams: Sequence[Stream], context: int, keep: float) -> Raw:
    """Reads every event as it comes, and the slots after it."""
    memory = (2 + -(-context // 128)) * page_bytes(student.model.config)
    config = LiveConfig(context=context, memory=memory, keep=keep, batches=(1,))
    reader = Live(student, has_slow_pass=False, writes_responses=False, config=config)
    signals: dict[Key, tuple[float, tuple[float, ...]]] = {}
    for stream in streams:
        steps = {step.event: (number, step.candidates) for number, step in enumerate(stream.steps)}
        for number, event in enumerate(stream.events):
            step, offers = steps.get(number, (None, (Candidate(),)))
            [reading] = reader.observe([(stream.id, event, offers)])
            if step is not None:
                need, *accept = scipy.special.expit([reading.z_need, *reading.z_accept]).tolist()
                signals[stream.id, step] = need, tuple(accept)
        reader.forget(stream.id)
    return signals


def decide(raw: Raw, streams: Sequence[Stream], maps: Calibration, point: OperatingPoint) -> LiveDecisions:
    """Decides on every step by the dynamic gate, and counts what it costs."""
    columns = []
    for stream in streams:
        domain = np.array([stream.domain])
        for number, step in enumerate(stream.steps):
            raw_need, raw_accept = raw[stream.id, number]
            need = float(apply_map(maps.fit("need", "fast").map, np.array([raw_need]), domain)[0])
            accept = apply_map(maps.fit("accept", "fast").map, np.array(raw_accept), np.repeat(domain, len(raw_accept)))
            best = int(np.argmax(raw_accept))
            offers = float(gate.decide(need, float(accept[best]), c_fa=point.c_fa, c_fn=point.c_fn))
            y_need, y_accept = step.y_need, step.candidates[best].y_accept
            if y_need is None or y_accept is None:
                raise ValueError(f"stream {stream.id!r}, step {number}: found no label, expected both")
            most = max(offer.y_accept for offer in step.candidates if offer.y_accept is not None)
            cost = metrics.step_costs(offers, y_accept, most, point.c_fa, point.c_fn * y_need)
            columns.append((need, float(accept[0]), offers, float(cost)))
    return LiveDecisions(*map(np.array, zip(*columns, strict=True)))


def outgrown(template: Template, streams: Sequence[Stream], context: int) -> float:
    """Share of the steps whose whole history does not fit into the context."""
    beyond = []
    for stream in streams:
        before, used, lengths = None, len(template.system()), []
        for event in stream.events:
            used += len(template.event(event, before))
            lengths.append(used)
            before = event
        for step in stream.steps:
            branch = len(template.head()) + sum(len(template.leaf(offer)) for offer in step.candidates)
            beyond.append(lengths[step.event] + branch > context)
    return float(np.mean(beyond))


def compare(
    student: Student, streams: Sequence[Stream], maps: Calibration, point: OperatingPoint, context: int
) -> Table:
    """Evaluation and live streams of several `keep`, on the same steps."""
    offline = decide(read_offline(student, streams, context), streams, maps, point)
    stream = np.repeat(np.arange(len(streams)), [len(stream_of_steps.steps) for stream_of_steps in streams])

    def interval(values: np.ndarray, sign: str = "") -> str:
        return show_interval(mean_interval(values, stream), sign=sign)

    rows = [Row("evaluation", (interval(offline.cost), "", "", "", ""))]
    for keep in KEEPS:
        live = decide(read_live(student, streams, context, keep), streams, maps, point)
        moved = [np.abs(live.need - offline.need), np.abs(live.accept - offline.accept)]
        cells = [interval(live.cost), interval(live.cost - offline.cost, "+")]
        cells += [interval(np.abs(live.offers - offline.offers)), *map(interval, moved)]
        rows.append(Row(f"live, keep = {keep:g}", tuple(cells)))
    beyond = outgrown(student.template, streams, context)
    note = (
        f"{len(offline.cost)} test steps of {len(streams)} streams, {100 * beyond:.0f} % with a history beyond the "
        f"context of {context} tokens. The policy dynamic at C_FA = {point.c_fa:g}, C_FN = {point.c_fn:g}."
    )
    return Table("Live streams that outgrow their context", "reading", COLUMNS, (Section("", tuple(rows)),), note=note)


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("workdir", None, "Folder of a run that was trained and evaluated.", required=True)
    flags.DEFINE_integer("context", 96, "Maximum number of tokens up to the end of one decision.", lower_bound=1)
    flags.DEFINE_integer("streams", 300, "Number of test streams to read.", lower_bound=2)


def main() -> Iterable[Table]:
    """Compares the two."""
    options, workdir = flags.FLAGS, Workdir(flags.FLAGS.workdir)
    run = reopen_run(workdir)
    _, params = trained_params(run.config, workdir)
    maps = read_calibration(workdir.calibration).pooled()
    student, streams = run.student(params), tuple(run.splits.test)[: options.streams]
    return [compare(student, streams, maps, run.config.decision, options.context)]
