"""Seconds of the live passes of a student, measured once and kept beside its other files.

Every step of some test streams is decided as a live agent would, one stream at a time: the event is read against the
cached trunk of its stream (fast pass), then the fields are written and the slots read again (slow pass). Afterwards
each stream is read from nothing in one go (prefill), as after a restart. Programs are compiled before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float64, Int

from prism_jax.agent.live import Live, LiveConfig
from prism_jax.agent.reader import ThinkRequest
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.runtime.files import read_object, write_json
from prism_jax.streams import Stream
from prism_jax.student.branches import Branch
from prism_jax.student.engine import Engine, ReadRequest
from prism_jax.student.prompting.template import WritingConfig
from prism_jax.student.scoring.student import Student

FILE = "seconds.json"
PHASES = ("prefill", "fast", "slow")
Result = TypeVar("Result")


class Phase(NamedTuple):
    """One phase: of the steps in their order, or, for prefill, of the streams."""

    seconds: Float64[np.ndarray, " n"]
    tokens: Int[np.ndarray, " n"]  # tokens that were read, or written in the slow pass


class Timing(NamedTuple):
    """What was measured."""

    steps: list[tuple[str, int]]  # stream and number of each step
    phases: dict[str, Phase]  # the numbers of `PHASES`; without slow ones for a student that cannot think


def timing(trainings: Trainings) -> Timing:
    """The seconds of the student's live passes; measured unless the file is there."""
    path = trainings.store.place(*trainings.named) / FILE
    if not path.exists():
        run, params = trainings.student()
        streams = run.splits.test[: trainings.recipes.timed_streams]
        context = run.config.packing.context
        write_json(path, measure(run.student(params), streams, run.config.writing, context, slow=True))
    return timing_of(read_object(path, "prism_jax.experiments"))


def measure(
    student: Student, streams: Sequence[Stream], writing: WritingConfig, context: int, *, slow: bool
) -> dict[str, Any]:
    """The content of `FILE`: the live passes at every step of some streams, the slow one where the student has one."""
    live = Live(
        student,
        has_slow_pass=slow,
        writes_responses=False,
        writing=writing,
        config=LiveConfig(context=context, batches=(1,)),
    )
    return _steps(live, streams, slow) | {"prefill": _prefill(student, streams, context)}


def timing_of(content: Mapping[str, Any]) -> Timing:
    """What `measure` measured."""
    phases = {
        name: Phase(np.array(content[name]["seconds"], np.float64), np.array(content[name]["tokens"], np.int64))
        for name in PHASES
        if name in content
    }
    return Timing([(stream, step) for stream, step in content["steps"]], phases)


def _timed(work: Callable[..., Result], *arguments: Any) -> tuple[float, Result]:
    began = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - began, result


def _phase(rows: list[tuple[float, int]]) -> dict[str, Any]:
    seconds, tokens = zip(*rows, strict=True)
    return {"seconds": list(seconds), "tokens": list(tokens)}


def _steps(live: Live, streams: Sequence[Stream], has_slow_pass: bool) -> dict[str, Any]:
    """The fast and the slow pass of every step."""
    live.compile_all()
    steps, fast, slow = list[tuple[str, int]](), list[tuple[float, int]](), list[tuple[float, int]]()
    for stream in streams:
        number_of = {step.event: number for number, step in enumerate(stream.steps)}
        for place, event in enumerate(stream.events):
            number = number_of.get(place)
            offers = stream.steps[0 if number is None else number].candidates
            seconds, reading = _timed(live.observe, [(stream.id, event, offers)])
            if number is None:  # the arrival, at which nothing is decided
                continue
            steps.append((stream.id, number))
            fast.append((seconds, reading[0].tokens))
            if has_slow_pass:
                seconds, thought = _timed(live.think, [ThinkRequest(stream.id, offers)])
                slow.append((seconds, thought[0].tokens))
        live.forget(stream.id)
    return {"steps": steps, "fast": _phase(fast)} | ({"slow": _phase(slow)} if has_slow_pass else {})


def _prefill(student: Student, streams: Sequence[Stream], context: int) -> dict[str, Any]:
    """Reads each whole stream with the slots of its last step."""
    template = student.template
    answers = template.yes, template.no
    engine = Engine(student.model, student.params, answers, budget=context, memory=1 << 28, batches=(1,))
    engine.warm_up()
    rows = []
    for stream in streams:
        pairs = zip(stream.events, (None, *stream.events), strict=False)  # each event with the one before it
        ids = [token for event, last in pairs for token in template.event(event, last)]
        leaves = tuple(tuple(template.leaf(offer)) for offer in stream.steps[-1].candidates)
        branch = Branch(tuple(template.head()), leaves)
        seconds, _ = _timed(_read_whole, engine, template.system(), ReadRequest(stream.id, ids, [branch]))
        rows.append((seconds, len(template.system()) + len(ids) + len(branch.ids)))
        engine.close(stream.id)
    return _phase(rows)


def _read_whole(engine: Engine, system: list[int], reading: ReadRequest) -> None:
    engine.open(reading.stream, system)
    engine.read([reading])
