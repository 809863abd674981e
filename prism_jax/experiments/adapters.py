"""What low-rank adapters are worth beside training all parameters, at equal updates and with equal state.

    python -m prism_jax experiments adapters --workdir=DIR
    python -m prism_jax experiments adapters --workdir=DIR --weights=PATH.gguf --source=DIR

On the simulator a student is trained without one domain, and then adapted to it on few streams of that domain alone:
by training all of it, by adapters of several ranks, or by training only the matrices nearest to the slots whose state
(the values that train, their gradients and both moments) is no larger than that of the adapters of rank `EQUAL`. All
take the same updates. The learning rate of each method and seed is the one of RATES with the lowest loss on validation
streams. The measures are those of the new domain's test streams. Intervals are 95 % t intervals over seeds; differences
are paired by seed.

With weights and ProactiveBench, the same on people's votes: SmolLM2 in folds of whole streams, as the field's table
fine-tunes it. There are too few streams to choose a learning rate on: the table's own trains parameters, and `TIMES` as
much adapters. Trainings are kept in the workdir and resume.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from etils import epath
from flax import traverse_util

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.evaluation.protocol import calibrate, evaluate
from prism_jax.experiments.field.fine_tuned import training_on
from prism_jax.experiments.field.interface import Fold, Run
from prism_jax.experiments.field.material import read
from prism_jax.experiments.field.measures import SIGNALS, CalibratedFold, calibrated_folds, signal_of
from prism_jax.experiments.field.tables import TITLES, measure
from prism_jax.experiments.intervals import mean_over_seeds, show_interval
from prism_jax.experiments.paper.domain_transfer import HELD_OUT, SEEN, only, with_files
from prism_jax.experiments.paper.trainings import TRANSFER
from prism_jax.experiments.students import THINKING
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores
from prism_jax.student.lora import LoraConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.run import resolve
from prism_jax.training.run_config import RunConfig

SEEDS = (0, 1, 2)
RANKS = (4, 16, 64)
EQUAL = 16
"""The rank of the adapters whose state bounds that of `NEAREST`."""
RATES = (1e-3, 4e-3, 1.6e-2)
FOLDS = 4
"""Number of folds of people's votes."""
TIMES = 10
"""Factor from the learning rate of parameters to that of adapters, fixed before any result was known."""

BASE = dataclasses.replace(TRANSFER, student=dataclasses.replace(THINKING.student, vocab_size=1024))
"""The student that never sees the new domain."""
ADAPTED = dataclasses.replace(
    BASE,
    data=dataclasses.replace(BASE.data, train_streams=1000),
    training=dataclasses.replace(BASE.training, steps=100, checkpoint_every=100),
)
"""Its second training, on the new domain alone; a tenth of the streams choose the learning rate."""

NONE, FULL, NEAREST = "before", "all parameters", "nearest matrices"
ADAPTERS = {f"rank {rank}": LoraConfig(rank=rank) for rank in RANKS}
METHODS = (FULL, *ADAPTERS, NEAREST)
BYTES = 16
"""Bytes per value that trains: itself, its gradient and two moments, in float32."""


class Outcome(NamedTuple):
    """What one student reaches on the new domain."""

    regret: float  # expected cost per step of the calibrated gate minus that of the Bayes decisions
    need: float  # mean distance of calibrated p_need to the truth
    accept: float  # mean distance of calibrated p_accept to the truth


COLUMNS = (
    Column("values", "Number of values that train."),
    Column("state", "Bytes of these values, their gradients and moments."),
    Column("regret", "Expected cost per step above that of the true probabilities' decisions."),
    Column("minus all", "Regret minus that of training all parameters, paired by seed."),
    Column("need", "Mean distance of calibrated p_need to the truth."),
    Column("accept", "The same of p_accept."),
)


def with_method(config: RunConfig, name: str) -> RunConfig:
    """The config of an adaptation by one method; the vocabulary's size must be filled in."""
    if name in ADAPTERS:
        return dataclasses.replace(config, lora=ADAPTERS[name])
    if name == NEAREST:
        budget = trained_values(with_method(config, f"rank {EQUAL}"))
        frozen = (*config.training.frozen, nearest(config, budget))
        return dataclasses.replace(config, training=dataclasses.replace(config.training, frozen=frozen))
    return config


def trained_values(config: RunConfig) -> int:
    """The number of values that a training changes."""
    return Partition.of(Qwen3(config.student, config.lora), config.training.frozen).trained


def nearest(config: RunConfig, budget: int) -> str:
    """The pattern that freezes all but some matrices: from the last block downwards, each that fits the budget."""
    layers = traverse_util.flatten_dict(Qwen3(config.student).abstract_params()["layers"], sep="/")
    order = ("down_proj", "up_proj", "gate_proj", "o_proj", "v_proj", "k_proj", "q_proj")
    kernels = {name: leaf for name, leaf in layers.items() if name.endswith("kernel")}
    paths = sorted(kernels, key=lambda name: order.index(name.split("/")[-2]))
    chosen = []
    for layer in reversed(range(config.student.num_layers)):
        for path in paths:
            size = kernels[path].size // config.student.num_layers
            if size <= budget:
                chosen.append(f"layers/{layer}/{path}")
                budget -= size
    if not chosen:
        raise ValueError(f"budget: found {budget} values, expected at least those of one matrix")
    return rf"(?!(?:{'|'.join(map(re.escape, chosen))})$).*"


def best_of_rates(config: RunConfig, name: str, store: Store) -> tuple[RunConfig, float]:
    """The config with the learning rate of the lowest validation loss, and that rate."""
    configs = {
        rate: dataclasses.replace(config, training=dataclasses.replace(config.training, learning_rate=rate))
        for rate in RATES
    }
    rate = min(RATES, key=lambda rate: validation_loss(store.finished(f"adapters-{name}", configs[rate])))
    return configs[rate], rate


def validation_loss(folder: epath.Path) -> float:
    """The last validation loss of a run."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [line["validation_nll"] for line in lines if "validation_nll" in line][-1]


def outcome(scores: Scores, config: RunConfig) -> Outcome:
    """The measures on the new domain's test streams, with the maps of its calibration streams."""
    own = only(scores, (HELD_OUT,))
    evaluation = evaluate(own, calibrate(own, CalibrationConfig("platt")), config.decision)
    gate = evaluation.policy("dynamic", "calibrated")
    distances = (
        next(row.distance for row in evaluation.signals if (row.signal, row.form) == (signal, "calibrated"))
        for signal in ("need", "accept")
    )
    return Outcome(*(float(value) for value in (gate.regret, *distances) if value is not None))


class SeedResult(NamedTuple):
    """The results of one seed by method."""

    outcomes: dict[str, Outcome]
    values: dict[str, int]  # number of values that train
    rates: dict[str, float]  # learning rate that the validation streams chose


def run_seed(seed: int, store: Store) -> SeedResult:
    """Trains the base of a seed and adapts it by every method."""
    streams = store.folder / "streams"
    base = with_files(of_seed(BASE, seed), streams, SEEN)
    start = store.finished("adapters-base", base)
    results = SeedResult({NONE: outcome(store.scores("adapters-base", base, "fast"), base)}, {NONE: 0}, {})
    config = with_files(of_seed(ADAPTED, seed), streams, (HELD_OUT,))
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, validation=0.1),
        training=dataclasses.replace(config.training, start=str(start.resolve())),
    )
    for name in METHODS:
        adapted, rate = best_of_rates(with_method(config, name), name, store)
        results.outcomes[name] = outcome(store.scores(f"adapters-{name}", adapted, "fast"), adapted)
        results.values[name], results.rates[name] = trained_values(adapted), rate
    return results


def table(results: Sequence[SeedResult]) -> Table:
    """One row per method."""
    rows = []
    for name in (NONE, *METHODS):
        of_seeds = np.array([result.outcomes[name] for result in results])
        beside = of_seeds[:, 0] - np.array([result.outcomes[FULL].regret for result in results])
        values = results[0].values[name]
        cells = [f"{values:,}", f"{values * BYTES / 2**20:.2f} MiB" if values else "", _show(of_seeds[:, 0], digits=4)]
        cells.append("" if name == FULL else _show(beside, digits=4, sign="+"))
        rows.append(Row(name, (*cells, _show(of_seeds[:, 1]), _show(of_seeds[:, 2]))))
    chosen = "; ".join(f"{name}: {', '.join(f'{result.rates[name]:g}' for result in results)}" for name in METHODS)
    note = f"Means over {len(results)} seeds with 95 % t intervals. Learning rates chosen, by seed: {chosen}."
    return Table(f"Adapting to {HELD_OUT}", "", COLUMNS, (Section("", tuple(rows)),), note)


def _show(values: np.ndarray, **form: Any) -> str:
    return show_interval(mean_over_seeds(values), **form)


def on_votes(run: Run, source: str, steps: int, resamples: int) -> list[Table]:
    """The same on people's votes: a table per signal, pooled over the outer folds, with paired differences."""
    material, store = read("proactivebench", source), Store(run.cache)
    parts: dict[str, list[CalibratedFold]] = {name: [] for name in METHODS}
    for fold in material.folds(FOLDS):
        assert isinstance(fold, Fold), "these are streams"
        student = training_on(fold, run, steps=steps)
        for name in METHODS:
            scores = material.labelled(store.scores(name.replace(" ", "_"), _on_votes(student, name)))
            parts[name] += calibrated_folds([scores], CalibrationConfig("platt"))
    pairs = [(FULL, name) for name in METHODS if name != FULL]
    return [
        measure({name: signal_of(parts[name], signal) for name in METHODS}, TITLES[signal], resamples, pairs)
        for signal in SIGNALS
    ]


def _on_votes(config: RunConfig, name: str) -> RunConfig:
    """The config of one method; the architecture is that of the weights, which `with_method` needs to know."""
    sized = dataclasses.replace(config, student=resolve(config).student)
    training = with_method(sized, name).training
    if name not in ADAPTERS:
        return dataclasses.replace(config, training=training)
    training = dataclasses.replace(training, learning_rate=TIMES * training.learning_rate)
    return dataclasses.replace(config, training=training, lora=ADAPTERS[name])


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("workdir", None, "Folder for the trainings and tables.", required=True)
    flags.DEFINE_string("weights", "", "SmolLM2's weights, for people's votes; empty leaves them out.")
    flags.DEFINE_string("source", "", "Folder with ProactiveBench's repository.")
    flags.DEFINE_integer("steps", 32, "Number of training steps per fold on people's votes.", lower_bound=1)
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Trains and compares."""
    options = flags.FLAGS
    workdir = epath.Path(options.workdir)
    store = Store(workdir / "trainings")
    with store.claimed():
        yield table([run_seed(seed, store) for seed in SEEDS])
    if options.weights:
        run = Run(workdir / "votes", weights=options.weights)
        yield from on_votes(run, options.source, options.steps, options.resamples)
