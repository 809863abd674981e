"""From unlabelled streams to a deployed student and a report, by the commands that a user would type.

    python -m prism_jax experiments distill_demo --workdir=runs/distill_demo

(`make distill-demo`.) A separate process writes unlabelled streams of simulated users and serves an OpenAI-compatible
endpoint on loopback: a teacher and three judges, who know the truth and err (prism_jax/experiments/simulated_users.py).
Every command is printed before it runs: the teacher labels (`label`), the judges judge (`judge`), rows
are selected (`curate`), a student is trained and calibrated on the judges' labels (`train`), exported
(`export`), and decides on the held-out streams event by event (`agent`). None of them reads the truth.
The report at the end does (prism_jax/experiments/distill_report.py).

Started again on the same workdir, the demo repeats no command that was completed; one that was interrupted resumes from
the cache of answers, the newest checkpoint, or the agent's records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from absl import flags
from etils import epath

from prism_jax.agent.exported import read_exported
from prism_jax.experiments import distill_report
from prism_jax.experiments.simulated_users import ANSWERS, FILES, served
from prism_jax.experiments.stages import Stage, main_of, run_stages
from prism_jax.report.table import Table, print_all
from prism_jax.runs.curation import summary_path
from prism_jax.runtime.files import read_object, write_bytes, write_json, write_text
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import read_streams

MADE_BY = "demo.json"
"""File of the settings that the workdir was made with, and of the endpoint's address."""
SETTINGS = ("train", "calibration", "held_out", "seed", "steps")


class Files(NamedTuple):
    """Where everything lies in the workdir."""

    folder: epath.Path
    answers: epath.Path  # what the held-out users would have answered; for the report alone
    cache: epath.Path  # the cache of the endpoint's answers
    curated: epath.Path  # the training streams that curation keeps
    student: epath.Path  # the workdir of the training run
    model: epath.Path  # the exported student
    events: epath.Path  # the events of the held-out streams, as the agent reads them
    state: epath.Path  # the agent's state
    records: epath.Path  # its decisions
    fast_only: epath.Path  # the same events, decided without the slow pass

    @classmethod
    def of(cls, folder: epath.Path) -> Files:
        """The files of a workdir."""
        return cls(
            folder,
            answers=folder / ANSWERS,
            cache=folder / "answers.sqlite",
            curated=folder / "curated.jsonl",
            student=folder / "student",
            model=folder / "model",
            events=folder / "events.jsonl",
            state=folder / "state",
            records=folder / "records.jsonl",
            fast_only=folder / "fast_only.jsonl",
        )

    def streams(self, stage: str, split: str) -> epath.Path:
        """The streams of a split after a stage: `unlabelled`, `teacher` or `judged`."""
        name = FILES[split]
        return self.folder / (name if stage == "unlabelled" else f"{stage}_{name}")


def commands(files: Files, url: str, steps: int) -> list[Stage]:
    """The commands in order; `url` is the address of the endpoint, `steps` the number of optimizer steps."""
    cache = f"--config.remote.cache={files.cache}"
    listed = []
    for split in FILES:
        source, out = files.streams("unlabelled", split), files.streams("teacher", split)
        arguments = (f"--config=configs/simulated_teacher.py:{url}", cache, f"--streams={source}", f"--out={out}")
        listed.append(Stage(f"the teacher labels {source.name}", main_of("label", *arguments), out.exists, asks=True))
    for split in FILES:
        source, out = files.streams("teacher", split), files.streams("judged", split)
        votes = out.with_suffix(".votes.jsonl")
        panel = (f"--config=configs/simulated_judges.py:{url}", cache, "--resamples=1000")
        paths = (f"--streams={source}", f"--votes={votes}", f"--out={out}")
        listed.append(
            Stage(f"three judges judge {source.name}", main_of("judge", *panel, *paths), out.exists, asks=True)
        )
    return [*listed, *_student(files, steps), *_agent(files)]


def _student(files: Files, steps: int) -> list[Stage]:
    """Selection, training and export."""
    judged = files.streams("judged", "train"), files.streams("judged", "calibration"), files.streams("judged", "test")
    selected = (f"--streams={judged[0]}", f"--out={files.curated}")
    sources = zip(("train", "calibration", "test"), (files.curated, *judged[1:]), strict=True)
    training = (
        "--config=configs/distilled.py",
        f"--workdir={files.student}",
        f"--config.training.steps={steps}",
        *(f"--config.data.{name}_source={path}" for name, path in sources),
    )
    exported = (f"--model={files.student}", f"--workdir={files.model}")
    summary, report = summary_path(files.curated), files.student / "report.html"
    return [
        Stage("rows on which teacher and judges agree are kept", main_of("curate", *selected), summary.exists),
        Stage(
            "a student is trained and calibrated, and measured by the judges",
            main_of("train", *training),
            report.exists,
        ),
        Stage("the student is exported", main_of("export", *exported), files.model.exists),
    ]


def _agent(files: Files) -> list[Stage]:
    """The agent on the held-out streams, and its decisions once more without the slow pass."""
    kept = (f"--state={files.state}", f"--records={files.records}")
    live = (f"--model={files.model}", f"--input={files.events}", *kept)
    again = (f"--replay={files.records}", "--margin=0", f"--records={files.fast_only}")
    return [
        Stage(
            "the agent decides on the held-out streams, slow on margin",
            main_of("agent", *live),
            lambda: _count_lines(files.records) == _count_lines(files.events),
        ),
        Stage("the same events, fast only", main_of("agent", *again), files.fast_only.exists),
    ]


def _count_lines(path: epath.Path) -> int:
    """The number of whole lines; 0 without a file."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def event_lines(streams: Sequence[Stream]) -> str:
    """The events of unlabelled streams as the agent reads them: side by side, with the offers of the steps."""
    rows = []
    for stream in streams:
        offers = {step.event: [candidate.text for candidate in step.candidates] for step in stream.steps}
        for number, event in enumerate(stream.events):
            line = {"stream": stream.id, "time": event.time, "text": event.text, "domain": stream.domain}
            rows.append((number, line | ({"candidates": offers[number]} if number in offers else {})))
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for _, line in sorted(rows, key=lambda row: row[0]))


def users_of(files: Files, settings: dict[str, int], before: str) -> tuple[str, ...]:
    """The flags of the users' process, which serves at the address of an earlier call if there was one."""
    sizes = [f"--{name}={settings[name]}" for name in ("train", "calibration", "held_out", "seed")]
    return (f"--workdir={files.folder}", *sizes, f"--port={urlsplit(before).port or 0}")


def final_report(files: Files) -> Table:
    """The student beside its teacher, by the users' answers."""
    point = read_exported(files.model).point
    held_out = read_streams(files.streams("teacher", "test"))
    teacher = distill_report.teachers_decisions(held_out, read_streams(files.streams("judged", "calibration")), point)
    student = {
        "student, fast only": distill_report.decided(files.fast_only, held_out),
        "student, slow on margin": distill_report.decided(files.records, held_out),
    }
    return distill_report.report(distill_report.Truth.of(read_streams(files.answers)), {**student, **teacher}, point)


def _address_before(path: epath.Path, settings: dict[str, int]) -> str:
    """The address at which an earlier call on the workdir asked; empty without one."""
    if not path.exists():
        return ""
    made = read_object(path, str(path))
    if made["settings"] != settings:
        raise ValueError(f"--workdir: found {path}, made with {made['settings']}, expected {settings}")
    return made["url"]


def demo(folder: epath.Path, settings: dict[str, int]) -> Table:
    """Runs whatever the workdir lacks, and writes report.md and report.csv.

    ValueError for a workdir that was made with other settings; RuntimeError for a command that fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files, began = Files.of(folder), time.monotonic()
    url = _address_before(folder / MADE_BY, settings)
    listed = commands(files, url, settings["steps"])
    if all(step.done() for step in listed if step.asks):
        run_stages(listed, asks=True)  # only says so
    else:
        with served(*users_of(files, settings, url)) as url:
            # Answers are cached by address, so a demo that was interrupted must ask at the same one again.
            write_json(folder / MADE_BY, {"settings": settings, "url": url})
            listed = commands(files, url, settings["steps"])
            run_stages(listed, asks=True)
    if not files.events.exists():
        write_text(files.events, event_lines(read_streams(files.streams("unlabelled", "test"))))
    run_stages(listed, asks=False)
    table = final_report(files)
    write_bytes(folder / "report.csv", table.to_csv().encode())
    write_text(folder / "report.md", table.to_markdown())
    print(f"\n{time.monotonic() - began:.0f} s in all; report: {folder / 'report.md'}")
    return table


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("workdir", None, "Folder for everything that the demo makes.", required=True)
    flags.DEFINE_integer("train", 1000, "Number of training streams.", lower_bound=2)
    flags.DEFINE_integer("calibration", 100, "Number of calibration streams.", lower_bound=2)
    flags.DEFINE_integer("held_out", 150, "Number of held-out streams.", lower_bound=2)
    flags.DEFINE_integer("steps", 500, "Number of optimizer steps.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the users and of the teacher's errors.", lower_bound=0)


def main() -> Iterable[Table]:
    """Runs the demo and prints its report."""
    settings = {name: getattr(flags.FLAGS, name) for name in SETTINGS}
    print_all([demo(epath.Path(flags.FLAGS.workdir), settings)])
    return []  # the demo writes its report itself, beside all that it is made of
