"""What the stages of the paper take in earnest, without doing them: requests, tokens, dollars, memory, hours, disk.

Requests follow from the stages and from the number of ProactiveBench's events; tokens of a prompt are those of its own
test events, measured once (`PROMPT_TOKENS`). Every answer counts as long as its config allows, so that dollars are a
bound. Memory and arithmetic are the compiler's for A100s that need not be there (`train --plan --target`). Its hours
are those of the roofline, which no run beats, and twice as many.
"""

from __future__ import annotations

import dataclasses
import math
import runpy
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from etils import epath

from prism_jax.experiments.stages import main_of, run
from prism_jax.labelling.judges.judging import JudgesConfig
from prism_jax.labelling.teacher.labelling import TeacherConfig
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.prices import price_of
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.files import parse_json, read_bounded, write_json
from prism_jax.training.pathway_config import PATHWAYS

TRAINING_EVENTS = 6790
"""Events of ProactiveBench's training split (Lu et al., arXiv 2410.12361)."""
TEST_EVENTS = 233
"""Events of its 12 files of test events: 112 of coding and 121 of writing."""
CALIBRATION_EVENTS = 679
"""A tenth of the training events (`import --calibration_share`); the paper does not say what calibrates."""
EVENTS = {"train": TRAINING_EVENTS - CALIBRATION_EVENTS, "calibration": CALIBRATION_EVENTS, "test": TEST_EVENTS}
CURATED, EPOCHS, KEPT = 1800, 3, 2
"""Decisions that curation keeps and epochs (both of the paper), and checkpoints that a run keeps."""

Kind = Literal["teacher", "judge", "agent"]
PROMPT_TOKENS: dict[Kind, float] = {"teacher": 972.0, "judge": 764.0, "agent": 1775.0}
"""Mean tokens of a prompt, of four bytes each, over the 193 events of ten of the 12 test files: the teacher's question,
the official question of a judge, and the conversation of the benchmark's agent with answers of 100 tokens."""

CONFIGS = {1: "configs/qwen3_8b_a100.py", 8: "configs/qwen3_8b_a100x8.py"}
BATCH = {1: 4, 8: 8}
WEIGHTS_GB = 16.4


class Asks(NamedTuple):
    """What a stage asks other models."""

    kind: Kind
    config: str  # value of --config, a file of configs/ with its argument
    requests: int  # of each endpoint of the config
    paid_before: int = 0  # of these, requests that an earlier stage sends, so that the cache answers


@dataclasses.dataclass(frozen=True)
class Bill:
    """What asking takes."""

    requests: int = 0
    prompt: float = 0.0  # tokens of prompts
    answer: float = 0.0  # tokens of answers, each as long as its config allows
    dollars: float = 0.0

    def __add__(self, other: Bill) -> Bill:
        return Bill(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    def __str__(self) -> str:
        millions = f"{self.prompt / 1e6:,.1f} million tokens of prompts, up to {self.answer / 1e6:,.1f} of answers"
        return f"{self.requests:,} requests, {millions}, up to {self.dollars:,.2f} USD"


def endpoints_of(kind: Kind, config: str) -> tuple[EndpointConfig, ...]:
    """The endpoints of a config file, whose argument may follow a colon; judges are asked in the benchmark's form."""
    path, _, argument = config.partition(":")
    made = runpy.run_path(path)["get_config"](*([argument] if argument else []))
    if kind == "judge":
        panel = from_config_dict(JudgesConfig, made)
        least = panel.official_tokens
        return tuple(
            dataclasses.replace(one, max_tokens=max(one.max_tokens, least)) for one in panel.endpoints.values()
        )
    return (from_config_dict(TeacherConfig, made).endpoint,)


def bill(asks: Asks) -> Bill:
    """The bill of a stage, without what an earlier stage pays."""
    sent, total = asks.requests - asks.paid_before, Bill()
    for endpoint in endpoints_of(asks.kind, asks.config):
        prompt, answer = sent * PROMPT_TOKENS[asks.kind], float(sent * endpoint.max_tokens)
        dollars = price_of(endpoint).of(round(prompt), round(answer))
        total += Bill(sent, prompt, answer, dollars)
    return total


@dataclasses.dataclass(frozen=True)
class Costs:
    """The costs of trainings."""

    plans: Mapping[int, Mapping[str, Any]]  # the compiler's plan by number of GPUs; empty without the compiler

    @classmethod
    def of(cls, folder: epath.Path) -> Costs:
        """Compiles, once per folder: a file there keeps the result."""
        path = folder / "real_costs.json"
        if not path.exists():
            write_json(path, {"plans": dict(_plans(folder))})
        return cls({int(gpus): plan for gpus, plan in parse_json(read_bounded(path), str(path))["plans"].items()})

    def of_training(self, pathway: str) -> Iterator[str]:
        """What a training by a pathway takes, in lines."""
        for gpus, plan in self.plans.items():
            updates, hours = self._hours(pathway, gpus)
            yield (
                f"in earnest, {gpus} x A100: {updates:,} updates, {plan['peak_gib']:.1f} of {plan['limit_gib']:.1f} "
                f"GiB each, {updates * plan['model_tflop'] * gpus / 1e3:,.0f} PFLOP, at least {hours:.1f} hours, "
                f"{2 * hours:.1f} at half of the roofline, {self._disk(gpus):,.0f} GB of checkpoints"
            )
        if not self.plans:
            yield "in earnest: unknown without the compiler (launch/compiler.sh)"

    def _hours(self, pathway: str, gpus: int) -> tuple[int, float]:
        rows = CURATED if PATHWAYS[pathway].filtered else EVENTS["train"]
        updates = math.ceil(EPOCHS * rows / BATCH[gpus])
        return updates, updates / self.plans[gpus]["updates_per_hour"]

    def _disk(self, gpus: int) -> float:
        plan = self.plans[gpus]
        return KEPT * gpus * (plan["peak_gib"] - plan["temp_gib"]) * 2**30 / 1e9

    def total(self, pathways: list[str]) -> Iterator[str]:
        """The sums over trainings, in lines."""
        for gpus in self.plans:
            hours, disk = sum(self._hours(name, gpus)[1] for name in pathways), len(pathways) * self._disk(gpus)
            yield (
                f"{gpus} x A100: at least {hours:.1f} hours for {len(pathways)} trainings, {2 * hours:.1f} at half of "
                f"the roofline; {disk + 2 * WEIGHTS_GB:,.0f} GB of disk"
            )


def _plans(folder: epath.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The compiler's plan of each config, by the number of its GPUs; none if the compiler cannot be installed."""
    installed = run(("launch/compiler.sh",), capture_output=True)
    if installed.returncode:
        print(f"launch/compiler.sh: {installed.stderr.strip().splitlines()[-1]}: memory and hours stay unknown")
        return
    for gpus, config in CONFIGS.items():
        path = folder / f"plan_{gpus}.json"
        flags = (f"--config={config}", "--plan", "--target=a100-80gb", f"--devices={gpus}", f"--plan_out={path}")
        done = run(main_of("train", *flags), capture_output=True)
        if not path.exists():
            raise RuntimeError(f"{config}: {done.stderr.strip().splitlines()[-1]}")
        yield str(gpus), parse_json(read_bounded(path), str(path))
