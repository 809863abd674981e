"""A miniature of ProactiveBench's repository, made of simulated users: its layout, and words of our own.

A rehearsal of the paper starts from it as from the real one: training data in chat form, files of test events, people's
votes on offers, the scripts from which the prompts are read, and traces of the five published models.

    python -m prism_jax.experiments.miniature --page=people.html --users=DIR/answers.jsonl --workdir=FOLDER

answers a page for people (`judge --page_out`) as three simulated annotators, who know the users and err, and
writes annotator_1.jsonl and so on, as a browser downloads them. With --truth, one who does not err writes truth.jsonl.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from etils import epath

from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.labelling.judges.votes import Vote, write_votes
from prism_jax.proactivebench.published import PAPER_SYSTEMS
from prism_jax.runtime import command
from prism_jax.runtime.files import encode_json, write_files
from prism_jax.streams import RESPONSE_KEYS, Step, Stream
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.proactivebench_source import REWARD_FILES, STREAM_FOLDER
from prism_jax.streams.published.prompts import AGENT_SCRIPT, JUDGE_SCRIPT, PLACE
from prism_jax.streams.simulator import subject
from prism_jax.streams.traces import Trace, TraceEvent, write_traces

EPOCH = 1.7e9
"""The time of day 0 of the simulated users, in seconds."""
PREFIXES = {"coding": "code", "writing": "writing"}
"""The beginning of the name of a file of test events, by domain; other domains are trained on only."""
ANNOTATORS = 3
AGENT = f"""\"\"\"The prompts of a miniature.\"\"\"
SYSTEM = "You watch a user. Answer in JSON with the keys {", ".join(RESPONSE_KEYS)}; the task is null for silence."
STEP = json.dumps({{"Instructions": "Propose a task, or none.", "Observation": "{PLACE}"}})
"""
JUDGE = """\"\"\"The prompts of a miniature.\"\"\"
SYSTEM = "You are the user. Accept or reject the task, in JSON: thought, then judgement (accepted or rejected)."


def format_reward_instruction(obs, pred_task):
    return {"Observations": obs, "Task": pred_task, "Instruction": "Judge the task."}
"""


class Checkout:
    """The folder of a miniature, and its files."""

    def __init__(self, folder: epath.Path):
        self.folder = folder

    def agent_data(self) -> dict[str, epath.Path]:
        """The training data in chat form, by domain."""
        return {domain: self.folder / "agent_data" / f"{domain}.json" for domain in (*PREFIXES, "life")}

    def write(self, train: Sequence[Stream], test: Sequence[Stream]) -> None:
        """Writes all files; streams hold true probabilities and what the user would answer to an offer at each step."""
        named = name_streams(test)
        files = {self.folder / AGENT_SCRIPT: AGENT.encode(), self.folder / JUDGE_SCRIPT: JUDGE.encode()}
        for domain, path in self.agent_data().items():
            files[path] = encode_json([_conversation(stream) for stream in train if stream.domain == domain])
        folder = self.folder / STREAM_FOLDER
        for stream in named:
            files[folder / f"{stream.id}.json"] = encode_json([_observed(stream, n) for n in range(len(stream.events))])
        names = [f"{stream.id}.json" for stream in named]
        files[folder / "splits.json"] = encode_json(
            {"real_average": {"files": names}}
            | {f"real_{domain}": {"files": [n for n in names if n.startswith(p)]} for domain, p in PREFIXES.items()}
        )
        rows = [row for stream in named for step in stream.steps for row in _judgements(stream, step)]
        for path, content in zip(REWARD_FILES, (rows[len(rows) // 10 :], rows[: len(rows) // 10]), strict=True):
            files[self.folder / path] = "".join(json.dumps(row) + "\n" for row in content).encode()
        for path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_files(files)
        for number, name in enumerate(PAPER_SYSTEMS.values()):
            traces = self.folder / "eval" / "traces_new" / name
            if not traces.exists():
                traces.parent.mkdir(parents=True, exist_ok=True)
                write_traces(traces, {stream.id: _trace(stream, name, 0.5 + number / 10) for stream in named})


def name_streams(test: Iterable[Stream]) -> list[Stream]:
    """The test streams of the miniature's domains, named as the benchmark names its files."""
    kept = [stream for stream in test if stream.domain in PREFIXES]
    return [
        dataclasses.replace(stream, id=f"{PREFIXES[stream.domain]}_{number}")
        for number, stream in enumerate(kept, start=1)
    ]


def _times(stream: Stream) -> list[str]:
    """The times of events as the benchmark writes them; no two streams begin at the same one."""
    day = int(hashlib.sha256(stream.id.encode()).hexdigest()[:8], 16) % 1_000_000
    return [str(EPOCH + 100 * day + event.time) for event in stream.events]


def _observed(stream: Stream, number: int) -> dict[str, Any]:
    observation = {"time": _times(stream)[number], "event": stream.events[number].text}
    return {"observation": observation, "agent_response": {"candidate_task": []}, "task_status": False}


def _conversation(stream: Stream) -> dict[str, Any]:
    """A row of the training data: a published assistant, which offers to help with a random item half of the time."""
    rng, turns = random.Random(f"prism_jax published {stream.id}"), []
    for time, event in zip(_times(stream), stream.events, strict=True):
        task = "Help the user." if rng.random() < 0.5 else None
        answer = dict(zip(RESPONSE_KEYS, ("To go on.", "Watching.", task, "Shall I?"), strict=True))
        turns += [
            {"from": "human", "value": json.dumps({"Time": time, "Event": event.text})},
            {"from": "gpt", "value": json.dumps(answer)},
        ]
    return {"conversations": turns}


def _judgements(stream: Stream, step: Step) -> Iterator[dict[str, Any]]:
    """People's verdicts on two offers of a step, of which one is to the point, and on silence."""
    seen = list(zip(_times(stream), stream.events, strict=True))[: step.event + 1]
    topic, wanted = subject(stream, step.event), step.candidates[0].y_accept == 1
    tasks = {f"Help with {topic}.": wanted, "Order a pizza.": False, None: step.y_need == 0}
    for task, valid in tasks.items():
        yield {
            "obs": [{"time": time, "event": event.text} for time, event in seen],
            "pred_task": task,
            "valid": valid,
            "help_needed": wanted,
            "annotation": [valid, valid, valid],
            "category": "simulated",
        }


def _trace(stream: Stream, model: str, eagerness: float) -> Trace:
    """What a published model did: it offers at a share of the events, mostly to the point."""
    rng, events = random.Random(f"prism_jax {model} {stream.id}"), []
    for number, (time, event) in enumerate(zip(_times(stream), stream.events, strict=True)):
        topic = subject(stream, number) if rng.random() < 0.8 else "a pizza"
        answer = [f"Help with {topic}."] if rng.random() < eagerness else []
        events.append(TraceEvent(time=time, text=event.text, answer=answer))
    return tuple(events)


def annotate(
    page: epath.PathLike, users: Sequence[Stream], out: epath.PathLike, accuracies: Mapping[str, float]
) -> list[epath.Path]:
    """Answers a page as simulated annotators, each of whom gives what the users want with a probability, by name.

    Raises ValueError for a file that is no page for people.
    """
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', epath.Path(page).read_text(), re.S)
    if found is None:
        raise ValueError(
            f"{page}: found no data of a page for people, expected what `python -m prism_jax judge --page_out` writes"
        )
    data, paths = json.loads(found[1]), []
    for number, (name, accuracy) in enumerate(accuracies.items(), start=1):
        person = SimulatedJudge(users, sensitivity=accuracy, specificity=accuracy, seed=3000 + number)
        votes = [vote for item in data["items"] for vote in _votes(data, item, person, name)]
        paths.append(epath.Path(out) / f"{name.replace(' ', '_')}.jsonl")
        write_votes(paths[-1], votes)
    return paths


def _votes(data: dict[str, Any], item: dict[str, Any], person: SimulatedJudge, name: str) -> Iterator[Vote]:
    seen = [{"event": text} for _, text, _ in data["streams"][item["stream"]][: item["event"] + 1]]
    for task, places in ((None, item["silence"]), *item["proposals"]):
        content = json.dumps({"Observations": seen, "Task": task})
        verdict = json.loads(person({"messages": [{"role": "user", "content": content}]}))["judgement"] == "accepted"
        for question, stream, step, candidate in places:
            now = "2026-01-01T00:00:00+00:00"  # the same in every rehearsal
            yield Vote(
                stream=stream,
                step=step,
                candidate=candidate,
                judge=name,
                question=question,
                verdict=verdict,
                time=now,
                prompt="page",
            )


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("page", None, "Page that `python -m prism_jax judge --page_out` wrote.", required=True)
    flags.DEFINE_string("users", None, "JSONL file of streams with what their users want.", required=True)
    flags.DEFINE_string("workdir", None, "Existing folder for the files of votes.", required=True)
    flags.DEFINE_bool("truth", False, "Answer as one who does not err, instead.")


def main() -> None:
    """Answers a page."""
    options = flags.FLAGS
    erring = {f"annotator {number}": 0.9 for number in range(1, ANNOTATORS + 1)}
    accuracies = {"truth": 1.0} if options.truth else erring
    for path in annotate(options.page, read_streams(options.users), options.workdir, accuracies):
        print(path)


if __name__ == "__main__":
    define_flags()
    command.start(main)
