"""Systems by name, as the paper's tables compare them: what each did at its steps, and what every judge says of that.

A system is a scores table, a folder of traces (`prism_jax.streams.traces`), or a file of streams that say what was
offered. A table decides by the deployed policy on calibrated signals, and its labels are its one judge: y_accept of the
offer that it makes, 1 - y_need of its silence. Traces and streams are judged by the votes of panels and of people.

Steps count as in ProactiveBench: an accepted proposal is a true positive, a rejected one a false positive, accepted
silence a true negative and rejected silence a false negative.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from etils import epath

from prism_jax.decision import metrics
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import rate_intervals
from prism_jax.evaluation import protocol
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells
from prism_jax.experiments.paper.sheet import Measure, Number
from prism_jax.experiments.paper.study import IntervalSettings, SkippedError
from prism_jax.experiments.paper.system_options import SystemOptions, named
from prism_jax.labelling.judges.agreements import HUMAN_CONFIG
from prism_jax.labelling.judges.ballots import Ballots, majority
from prism_jax.labelling.judges.labelling import gather, human_of, judge_ballots, votes_of
from prism_jax.labelling.judges.prompts import OURS
from prism_jax.labelling.judges.robustness import Judged, deeds, judged
from prism_jax.proactivebench.tables import RECALLS
from prism_jax.report.tables import over_units
from prism_jax.scores import ScoresError, located
from prism_jax.scores.joining import find_files, read_files
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.traces import fixed_turn, read_traces, trace_stream
from prism_jax.training.pathway_config import Method

OWN, PEOPLE = "labels of the scores", "human labels"
"""The judge of scores tables, and people's majority."""
RATES = {
    name: dataclasses.replace(measure, meaning="By ProactiveBench's own counts.")
    for name, measure in cells.RATES.items()
}
COUNTING = f"Steps count as in ProactiveBench: a rejected silence is a miss. {RECALLS}"
"""What stands at a table of several systems."""
BOTH = {"steps": Measure("steps", "Steps at which both systems have a verdict.", digits=0)}


@dataclasses.dataclass(frozen=True)
class System:
    """A system by name: a scores table, or what was done at the steps of some streams."""

    name: str
    files: tuple[str, ...]
    data: EvaluationData | None = None  # the test steps of a scores table; None for traces and streams
    streams: tuple[Stream, ...] = ()  # what was done, by the candidate that was `logged`; empty for a scores table
    unanswered: frozenset[tuple[str, int]] = frozenset()  # stream and event of answers that say nothing

    def by_labels(self, policy: str, form: Form) -> Judged:
        """What a policy does on the steps of a scores table, with the labels as verdicts."""
        assert self.data is not None, "a scores table"
        data, steps = self.data, self.data.steps
        decided = data.decide(policy, form)
        accepted = np.where(decided.offer, data.label("accept", decided), 1 - data.label("need"))
        if (soft := accepted[~np.isnan(accepted) & (accepted != 0) & (accepted != 1)]).size:
            raise ValueError(f"--system={self.name}: found the label {soft[0]:g}, expected 0 or 1 to count verdicts")
        return Judged(tuple(zip(steps.stream.tolist(), steps.step.tolist(), strict=True)), decided.offer, accepted)

    def by_votes(self, rater: Ballots) -> Judged:
        """What was done, with a single rater's verdicts."""
        of = judged(deeds(self.streams), rater)
        unanswered = np.array([step in self.unanswered for step in of.steps], bool)
        return of._replace(accepted=np.where(unanswered, np.nan, of.accepted))


@dataclasses.dataclass(frozen=True)
class Systems:
    """What a table of several systems is made of."""

    systems: tuple[System, ...]  # in the order of the rows
    panels: Mapping[str, Ballots]  # the verdicts of each panel's judges
    human: Ballots | None  # those of people, one judge for each
    against: str | None  # name of the system that the others are compared with
    settings: IntervalSettings
    method: Method = "corrected"  # whether tables also show AUDBC as the paper prints it

    @functools.cached_property
    def judges(self) -> dict[str, dict[str, Judged]]:
        """The systems that each judge has verdicts on: every panel, people, and the labels of scores tables.

        Raises:
          ValueError: for a system without a verdict, or scores tables whose labels are not of one judge.
        """
        raters = {name: majority(ballots) for name, ballots in self.panels.items()}
        if self.human is not None:
            raters[PEOPLE] = majority(self.human, HUMAN_CONFIG)
        done = [system for system in self.systems if system.data is None]
        found = {name: {of.name: of.by_votes(rater) for of in done} for name, rater in raters.items()}
        tables = [system for system in self.systems if system.data is not None]
        _check_one_judge(tables)
        found[OWN] = {of.name: of.by_labels(of.data.deployed(), "calibrated") for of in tables if of.data is not None}
        kept = {name: {key: of for key, of in all_of.items() if of.known} for name, all_of in found.items()}
        for system in self.systems:
            if not any(system.name in of for of in kept.values()):
                raise ValueError(
                    f"--system={system.name}: found no verdict on what it did, expected labels in a scores table, or "
                    "votes on traces and streams in --panel=NAME=VOTES or --human, asked with the same --most_events"
                )
        return {name: of for name, of in kept.items() if of}

    def rates(self, of: Judged) -> dict[str, Number]:
        """The rates of `RATES` on the steps with a verdict; NaN where undefined."""
        known = ~np.isnan(of.accepted)
        proposed, accepted = of.proposed[known], of.accepted[known] == 1
        streams = [stream for (stream, _), is_known in zip(of.steps, known, strict=True) if is_known]
        right = proposed == accepted
        values = metrics.rates(metrics.confusion(proposed, right))
        defined = [name for name in RATES if not np.isnan(getattr(values, name))]
        found = rate_intervals(proposed, right, streams=streams, names=defined, **self.settings.keywords())
        return {name: Number.of(found[name]) if name in found else Number() for name in RATES}

    def compared(self) -> tuple[str, dict[str, dict[str, Judged]]]:
        """The system of --against, and the `judges` of it and of another one.

        Raises:
          SkippedError: without --against, or without such a judge.
          ValueError: if --against names none of several systems.
        """
        against, names = self.against, [system.name for system in self.systems]
        if against is None:
            raise SkippedError("--against: found none, expected the name of the system that others are compared with")
        if against not in names or len(names) < 2:
            raise ValueError(f"--against: found {against!r}, expected one of several --system: {', '.join(names)}")
        judges = {name: members for name, members in self.judges.items() if against in members and len(members) > 1}
        if not judges:
            raise SkippedError(f"--against={against}: found no judge of it and of another system, expected one")
        return against, judges

    def note(self, *sentences: str, of: Mapping[str, Judged]) -> str:
        """The note of a table: its own sentences, what some systems lack, and the intervals."""
        steps, streams = union(of), {stream for stream, _ in union(of)}
        words = [f"{name} lacks {len(steps - own.known)}" for name, own in of.items() if steps - own.known]
        absent = [system.name for system in self.systems if system.name not in of]
        return " ".join(
            [
                *sentences,
                COUNTING,
                *([f"Of {len(steps)} steps, {', '.join(words)}."] if words else []),
                *([f"Not judged by this judge: {', '.join(absent)}."] if absent else []),
                f"{over_units(len(streams), level=self.settings.level)}.",
            ]
        )


def union(of: Mapping[str, Judged]) -> frozenset[tuple[str, int]]:
    """The steps at which some system has a verdict."""
    return frozenset[tuple[str, int]]().union(*(judged.known for judged in of.values()))


def stem(name: str, judge: str, judges: Iterable[str]) -> str:
    """The stem of a table's files: the name alone for the first judge, with the judge's for others."""
    return name if judge == next(iter(judges)) else re.sub(r"[^\w.-]+", "_", f"{name}_{judge}")


def _check_one_judge(tables: Sequence[System]) -> None:
    """Raises ValueError for two scores tables whose labels of need differ at a step: silence has one verdict."""
    labels: dict[tuple[str, int], tuple[float, str]] = {}
    for system in tables:
        assert system.data is not None, "a scores table"
        steps = system.data.steps
        for stream, step, need in zip(steps.stream, steps.step, system.data.label("need"), strict=True):
            first, name = labels.setdefault((stream, step), (need, system.name)) if need == need else (need, "")
            if first != need and need == need:
                raise ValueError(
                    f"--system={system.name}: stream {stream!r}, step {step}: found y_need = {need:g}, and {first:g} "
                    f"in {name}, expected scores tables with the labels of one judge"
                )


def read_systems(
    options: SystemOptions, point: OperatingPoint, settings: IntervalSettings, method: Method = "corrected"
) -> Systems:
    """Reads all systems, and the votes on what they did.

    Raises:
      ValueError, OSError: naming the flag or the file that cannot be used.
    """
    paths = named("system", options.system)
    for name, of_name in paths.items():
        if len(of_name) > 1:
            raise ValueError(f"--system: found {name!r} {len(of_name)} times, expected a name for each system")
    systems = tuple(_read(name, path, point) for name, (path,) in paths.items())
    streams = list(itertools.chain.from_iterable(system.streams for system in systems))
    panels = dict[str, Ballots]()
    for name, files in named("panel", options.panel).items():
        panels |= panels_of(name, files, streams, options.most_events)
    human = human_of(options.human, streams, options.most_events) if options.human else None
    names = {*panels, *(judge for ballots in panels.values() for judge in ballots.judges)}
    if human is not None and (same := names.intersection(human.judges)):
        raise ValueError(f"--human: found people named {', '.join(sorted(same))}, as judges are, expected other names")
    return Systems(systems, panels, human, options.against, settings, method)


def panels_of(name: str, paths: Sequence[str], streams: Sequence[Stream], most_events: int) -> dict[str, Ballots]:
    """The ballots of all judges in some files of votes; those on several prompts are panels, the benchmark's first."""
    votes = votes_of(paths)
    judges = list(dict.fromkeys(vote.judge for vote in votes))
    prompts = sorted({vote.prompt for vote in votes}, key=lambda prompt: (prompt == OURS, prompt))
    return {
        name if len(prompts) == 1 else f"{name}, {prompt}": judge_ballots(
            streams, gather(votes, judges, prompt), judges, most_events, prompt
        )
        for prompt in prompts
    }


def _read(name: str, path: str, point: OperatingPoint) -> System:
    """One system, by what the path holds."""
    place = epath.Path(path)
    inside = sorted(place.iterdir()) if place.is_dir() else []
    if inside and not any(file.suffix in (".parquet", ".jsonl") for file in inside):
        traces = read_traces(place)
        failed = [
            (stream, number)
            for stream, trace in traces.items()
            for number, event in enumerate(trace)
            if fixed_turn(event).failed
        ]
        files = tuple(str(file) for file in inside if file.suffix == ".json")
        streams = tuple(trace_stream(*trace) for trace in traces.items())
        return System(name, files, streams=streams, unanswered=frozenset(failed))
    if place.suffix == ".jsonl" and place.is_file() and '"events":' in place.open().readline():
        streams = tuple(read_streams(place))
        if all(offer.logged is None for of in streams for step in of.steps for offer in step.candidates):
            raise ValueError(f"{path}: found no candidate with `logged`, expected streams that say what was offered")
        return System(name, (path,), streams=streams)
    try:
        files = tuple(find_files(path))
        scores = read_files(files, extra=False)
        data = protocol.prepare(scores, protocol.calibrate(scores), point)[0]
    except ScoresError as error:
        raise located(error, path) from None
    if not data.has_need:
        raise ValueError(f"{path}: found no column p_need_fast, expected it: silence is judged by need")
    return System(name, files, data)
