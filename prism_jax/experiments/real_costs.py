"""What the stages of the paper take in earnest, without doing them: requests, tokens, dollars, memory, hours, disk.

Requests and tokens are those of a dry run of the very configs on a sample of streams, scaled to ProactiveBench's rows:
on ProactiveBench's own annotated events where they are beside the checkout, else on simulated ones, which are shorter.
Four bytes count as a token of a prompt, and every answer as long as its config allows, so that dollars are a bound.
Memory and arithmetic are the compiler's for A100s that need not be there (`train --plan --target`). Its hours are those
of the roofline, which no run beats, and twice as many.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from prism_jax.experiments.stages import Stage, main_of, run
from prism_jax.runtime.files import parse_json, read_bounded, write_json
from prism_jax.streams import proactivebench
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.sources import local_proactivebench
from prism_jax.training.pathways.table import PATHWAYS

TRAINING_ROWS, TEST_ROWS = 6790, 233
"""Events of ProactiveBench's training split (Lu et al., arXiv 2410.12361), and test clips that the paper states."""
CURATED, EPOCHS, KEPT = 1800, 3, 2
"""Decisions that curation keeps and epochs (both of the paper), and checkpoints that a run keeps."""
SLOW = "--config.pathway.slow=0.3"
"""The share of the steps that train the slow pass, of which the paper says nothing."""
TEACHER_PRICES = ("--config.endpoint.input_price=0.56", "--config.endpoint.output_price=1.68")
"""For a fake host, which the table of prices does not know."""
CONFIGS = {1: "configs/qwen3_8b_a100.py", 8: "configs/qwen3_8b_a100x8.py"}
BATCH = {1: 4, 8: 8}
WEIGHTS_GB = 16.4


@dataclasses.dataclass(frozen=True)
class Asked:
    """What asking about some rows takes."""

    requests: float
    prompt: float  # tokens of prompts
    answer: float  # tokens of answers, each as long as its config allows
    dollars: float  # what that costs
    prices: str  # of each model, with the date

    def times(self, factor: float) -> Asked:
        """The same for so many times as many rows."""
        requests, prompt = factor * self.requests, factor * self.prompt
        return Asked(requests, prompt, factor * self.answer, factor * self.dollars, self.prices)

    def __str__(self) -> str:
        millions = f"{self.prompt / 1e6:,.1f} million tokens of prompts, up to {self.answer / 1e6:,.1f} of answers"
        return f"{self.requests:,.0f} requests, {millions}, up to {self.dollars:,.2f} USD"


@dataclasses.dataclass(frozen=True)
class Costs:
    """The costs of all stages."""

    label: Asked  # of the teacher, per row
    judge: Asked  # of three judges, per row
    sample: str  # what the tokens were counted on
    plans: Mapping[int, Mapping[str, Any]]  # the compiler's plan by number of GPUs; empty without the compiler

    @classmethod
    def of(cls, folder: epath.Path) -> Costs:
        """Counts and compiles, once per folder: a file there keeps the result."""
        path = folder / "real_costs.json"
        if not path.exists():
            write_json(path, _measure(folder))
        kept = parse_json(read_bounded(path), str(path))
        plans = {int(gpus): plan for gpus, plan in kept["plans"].items()}
        return cls(Asked(**kept["label"]), Asked(**kept["judge"]), kept["sample"], plans)

    def of_stage(self, stage: Stage) -> Iterator[str]:
        """What a stage takes in earnest, in lines."""
        rows = {"train": TRAINING_ROWS, "test": TEST_ROWS}
        if asked := re.fullmatch(r"(the teacher|three judges) \w+ the (\w+) streams", stage.title):
            who, split = asked[1], asked[2]
            if split not in rows:
                yield "in earnest: a part of the training rows, which are counted above"
                return
            cost = (self.label if who == "the teacher" else self.judge).times(rows[split])
            yield f"in earnest: {rows[split]:,} rows, {cost}"
            yield f"            {cost.prices}; tokens as on {self.sample}"
        elif stage.title.partition(":")[0] in PATHWAYS:
            yield from self._of_training(stage.title.partition(":")[0])
        elif "exported" in stage.title:
            yield f"in earnest: {WEIGHTS_GB:g} GB of disk"
        else:
            yield "in earnest: the same command, seconds to minutes on a CPU"

    def _of_training(self, name: str) -> Iterator[str]:
        for gpus, plan in self.plans.items():
            updates, hours = self._hours(name, gpus)
            yield (
                f"in earnest, {gpus} x A100: {updates:,} updates, {plan['peak_gib']:.1f} of {plan['limit_gib']:.1f} "
                f"GiB each, {updates * plan['model_tflop'] * gpus / 1e3:,.0f} PFLOP, at least {hours:.1f} hours, "
                f"{2 * hours:.1f} at half of the roofline, {self._disk(gpus):,.0f} GB of checkpoints"
            )
        if not self.plans:
            yield "in earnest: unknown without the compiler (launch/compiler.sh)"

    def _hours(self, name: str, gpus: int) -> tuple[int, float]:
        rows = CURATED if PATHWAYS[name].filtered else TRAINING_ROWS
        updates = math.ceil(EPOCHS * rows / BATCH[gpus])
        return updates, updates / self.plans[gpus]["updates_per_hour"]

    def _disk(self, gpus: int) -> float:
        plan = self.plans[gpus]
        return KEPT * gpus * (plan["peak_gib"] - plan["temp_gib"]) * 2**30 / 1e9

    def total(self, names: tuple[str, ...]) -> Iterator[str]:
        """The sums over all stages, in lines; `names` are the pathways that train."""
        asked = [part.times(TRAINING_ROWS + TEST_ROWS) for part in (self.label, self.judge)]
        requests, dollars = sum(part.requests for part in asked), sum(part.dollars for part in asked)
        yield f"answers: {requests:,.0f} requests, up to {dollars:,.2f} USD"
        for gpus in self.plans:
            hours, disk = sum(self._hours(name, gpus)[1] for name in names), len(names) * self._disk(gpus)
            yield (
                f"{gpus} x A100: at least {hours:.1f} hours for {len(names)} pathways, {2 * hours:.1f} at half of the "
                f"roofline; {disk + 2 * WEIGHTS_GB:,.0f} GB of disk"
            )


def _measure(folder: epath.Path) -> dict[str, Any]:
    """The costs as plain data."""
    sample, words = _sample(folder)
    rows = sum(len(stream.steps) for stream in read_streams(sample))
    files = (f"--streams={sample}", f"--out={folder / 'never_written.jsonl'}", "--dry_run")
    cache = f"--config.remote.cache={folder / 'estimate.sqlite'}"
    label = _dry_run(main_of("label", "--config=configs/teacher.py", cache, *files))
    votes = f"--votes={folder / 'never_written.votes.jsonl'}"
    judge = _dry_run(main_of("judge", "--config=configs/judges_paper.py", cache, votes, *files))
    plans = dict(_plans(folder))
    asked = {name: dataclasses.asdict(part.times(1 / rows)) for name, part in (("label", label), ("judge", judge))}
    return asked | {"sample": words, "plans": plans}


def _sample(folder: epath.Path) -> tuple[epath.Path, str]:
    """A file of unlabelled streams to count tokens on, and what they are."""
    source, users = local_proactivebench(), folder / "users" / "train.jsonl"
    if not epath.Path(source or "none").is_dir():
        return users, "the simulated streams, which are shorter than ProactiveBench's"
    path = folder / "proactivebench.jsonl"
    write_streams(path, map(without_answers, proactivebench.load(source)))
    return path, "ProactiveBench's annotated events"


def _dry_run(words: tuple[str, ...]) -> Asked:
    """Reads the estimate of a dry run; RuntimeError if it fails."""
    done = run(words, capture_output=True)
    pattern = r"dry run: ([\d,]+) requests.*?estimate: ([\d,]+) prompt tokens, ([\d,]+) answer tokens, ([\d.]+) USD"
    estimate = re.search(pattern, done.stdout, re.DOTALL)
    if done.returncode or not estimate:
        raise RuntimeError(f"{' '.join(words[:5])}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    prices = re.findall(r"price of (.+)", done.stdout)
    requests, prompt, answer, dollars = (float(number.replace(",", "")) for number in estimate.groups())
    return Asked(requests, prompt, answer, dollars, "; ".join(prices))


def _plans(folder: epath.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The compiler's plan of each config, by the number of its GPUs; none if the compiler cannot be installed."""
    installed = run(("launch/compiler.sh",), capture_output=True)
    if installed.returncode:
        print(f"launch/compiler.sh: {installed.stderr.strip().splitlines()[-1]}: memory and hours stay unknown")
        return
    for gpus, config in CONFIGS.items():
        path = folder / f"plan_{gpus}.json"
        flags = (f"--config={config}", SLOW, "--plan", "--target=a100-80gb", f"--devices={gpus}", f"--plan_out={path}")
        done = run(main_of("train", *flags), capture_output=True)
        if not path.exists():
            raise RuntimeError(f"{config}: {done.stderr.strip().splitlines()[-1]}")
        yield str(gpus), parse_json(read_bounded(path), str(path))
