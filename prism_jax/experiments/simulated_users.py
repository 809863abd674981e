"""Simulated users behind a fake endpoint, in a process of its own: the only place of the demo that knows the truth.

    python -m prism_jax.experiments.simulated_users --workdir=DIR

Writes what a watching agent would have recorded of some users, without any label (train.jsonl, calibration.jsonl,
held_out.jsonl), prints the address of an OpenAI-compatible endpoint, and serves it until its input ends: a teacher
(model `teacher`) and judges (models `judge-0`, `judge-1`, ...), who err as configured and independently of each other.
What the users of held_out.jsonl would have answered to an offer is written to answers.jsonl, for the final report.
With --checkout, the same users also are a miniature of ProactiveBench's repository (`prism_jax.experiments.miniature`).
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from absl import flags
from etils import epath

from prism_jax.experiments.miniature import Checkout
from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.labelling.teacher.simulated import AgentQuality, SimulatedAgent, SimulatedTeacher, TeacherQuality
from prism_jax.remote.fake import FakeEndpoint
from prism_jax.runtime import command
from prism_jax.streams import Stream
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import simulate
from prism_jax.streams.simulator_config import Population, SimulatorConfig
from prism_jax.streams.sources import simulated_index

FILES = {"train": "train.jsonl", "calibration": "calibration.jsonl", "test": "held_out.jsonl"}
"""The file of unlabelled streams of each split."""
ANSWERS = "answers.jsonl"

Brain = Callable[[dict[str, Any]], str]


def population(sizes: Mapping[str, int], config: SimulatorConfig) -> dict[str, tuple[Stream, ...]]:
    """The users of each split, with what they would answer to an offer at every step."""
    return {
        split: tuple(simulate(config, simulated_index(split, index), "always") for index in range(count))
        for split, count in sizes.items()
    }


def brains(
    streams: tuple[Stream, ...],
    quality: TeacherQuality,
    teacher: str,
    judges: Sequence[str],
    accuracy: float,
    most_events: int,
    agents: Sequence[str] = (),
) -> dict[str, Brain]:
    """Teacher, judges and agents by model name, each with a seed of its own; a judge may be an agent, too."""
    models: dict[str, Brain] = {teacher: SimulatedTeacher(streams, PromptSettings(), quality)}
    for number, name in enumerate(judges):
        models[name] = SimulatedJudge(
            streams, sensitivity=accuracy, specificity=accuracy, seed=1000 + number, most_events=most_events
        )
    for number, name in enumerate(agents):
        agent = SimulatedAgent(streams, AgentQuality(seed=2000 + number))
        models[name] = _either(agent, models[name]) if name in models else agent
    return models


def _either(agent: SimulatedAgent, judge: Brain) -> Brain:
    """One model that is asked as the benchmark's agent, and as a judge."""

    def answer(body: dict[str, Any]) -> str:
        try:
            return judge(body)
        except ValueError:
            return agent(body)

    return answer


@contextlib.contextmanager
def served(*flags: str) -> Iterator[str]:
    """The simulated users in a process of their own, with the flags of this module; gives the endpoint's address.

    RuntimeError if the process ends at once.
    """
    words = ("python", "-m", __name__, *flags)
    print(f"simulated users behind an endpoint\n$ {shlex.join(words)} &", flush=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *words[1:]], text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{words[2]}: ended before it served its endpoint")
            yield json.loads(line)["url"]
        finally:
            process.stdin.close()  # ends the process


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("workdir", None, "Existing folder for the streams.", required=True)
    flags.DEFINE_enum("population", "switches", get_args(Population), "Which simulated users (docs/training.md).")
    flags.DEFINE_integer("responses", 0, "Most steps of a stream with a response, as simulator.responses.", 0)
    flags.DEFINE_integer("min_events", 8, "Fewest events of a stream.", lower_bound=2)
    flags.DEFINE_integer("max_events", 10, "Most events of a stream.", lower_bound=2)
    flags.DEFINE_integer("train", 1000, "Number of training streams.", lower_bound=1)
    flags.DEFINE_integer("calibration", 100, "Number of calibration streams.", lower_bound=1)
    flags.DEFINE_integer("held_out", 150, "Number of held-out streams.", lower_bound=1)
    flags.DEFINE_string("teacher", "teacher", "Model name of the teacher.")
    flags.DEFINE_list("judges", ["judge-0", "judge-1", "judge-2"], "Model names of the judges.")
    flags.DEFINE_list("agents", [], "Model names that answer as ProactiveBench's agent; a judge's may be among them.")
    flags.DEFINE_string("checkout", None, "Folder for a miniature of ProactiveBench's repository, of the same users.")
    flags.DEFINE_float("accuracy", 0.9, "Share of a judge's verdicts that are right.", 0.5, 1.0)
    flags.DEFINE_float("blur", 0.5, "Standard deviation of the teacher's errors in log-odds.", lower_bound=0.0)
    flags.DEFINE_float("field_errors", 0.02, "Share of the teacher's fields that are wrong.", 0.0, 1.0)
    flags.DEFINE_float("bias", 0.0, "What the teacher adds to all log-odds.")
    flags.DEFINE_float("response_errors", 0.02, "Share of the teacher's responses that are wrong.", 0.0, 1.0)
    flags.DEFINE_integer("most_events", 40, "Most events in a judge's question, as in the judges' config.")
    flags.DEFINE_integer("seed", 0, "Seed of the population and of the teacher's errors.")
    flags.DEFINE_integer("port", 0, "Port to listen on; 0 is a free one.", 0, 65535)


def main() -> None:
    """Writes the streams and serves the endpoint."""
    options, folder = flags.FLAGS, epath.Path(flags.FLAGS.workdir)
    sizes = {"train": options.train, "calibration": options.calibration, "test": options.held_out}
    settings = {name: getattr(options, name) for name in ("population", "min_events", "max_events", "seed")}
    users = population(sizes, SimulatorConfig(responses=options.responses, **settings))
    for split, name in FILES.items():
        write_streams(folder / name, map(without_answers, users[split]))
    write_streams(folder / ANSWERS, users["test"])
    quality = TeacherQuality(
        blur=options.blur,
        bias=options.bias,
        field_errors=options.field_errors,
        response_errors=options.response_errors,
        seed=options.seed,
    )
    everyone = tuple(stream for streams in users.values() for stream in streams)
    if options.checkout is not None:
        Checkout(epath.Path(options.checkout)).write(users["train"], users["test"])
    who = (options.teacher, options.judges, options.accuracy, options.most_events, options.agents)
    models = brains(everyone, quality, *who)
    with FakeEndpoint(lambda body: models[body["model"]](body), port=options.port) as endpoint:
        print(json.dumps({"url": endpoint.url}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    define_flags()
    command.start(main)
