"""What low-rank adapters are worth beside training all parameters, at equal updates and with equal state.

    python -m studies adapters --workdir=DIR
    python -m studies adapters --workdir=OTHER --weights=PATH.gguf --source=DIR

On the simulator a student is trained without one domain, and then adapted to it on few streams of that domain alone:
by training all of it, by adapters of several ranks, or by training only the matrices nearest to the slots whose state
(the values that train, their gradients and both moments) is no larger than that of the adapters of rank `EQUAL`. All
take the same updates. The learning rate of each method and seed is the one of RATES with the lowest loss on validation
streams. The measures are those of the new domain's test streams. Intervals are 95 % t intervals over seeds; differences
are paired by seed.

With weights and ProactiveBench, people's votes take the simulator's place: SmolLM2 in folds of whole streams, as the
field's table fine-tunes it. There are too few streams to choose a learning rate on: the table's own trains parameters,
and `TIMES` as much adapters. Trainings are kept in the workdir and resume.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from absl import flags
from etils import epath
from flax import traverse_util

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.experiments.field.fine_tuned import training_on
from prism_jax.experiments.field.interface import Fold, Run
from prism_jax.experiments.field.material import Material, read
from prism_jax.experiments.field.measures import SIGNALS, CalibratedFold, calibrated_folds, signal_of
from prism_jax.experiments.field.tables import TITLES, measure
from prism_jax.experiments.paper.domain_transfer import HELD_OUT, SEEN, only, with_files
from prism_jax.experiments.paper.trainings import TRANSFER
from prism_jax.report.table import Column, Table
from prism_jax.runs.store import Store, of_seed
from prism_jax.runtime.command import check_together
from prism_jax.scores import Scores
from prism_jax.student.qwen3 import Qwen3
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.run_config import RunConfig
from prism_jax.training.start import with_start
from prism_jax.training.students import THINKING
from studies.runner import BAYES, FAST, Comparison, Costs, Measured, costs, laid_over, open_store, table, workdir_flag

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
ADAPTED = {"data.train_streams": 1000, "training.steps": 100, "training.checkpoint_every": 100}
"""Settings of its second training, on the new domain alone; a tenth of the streams choose the learning rate."""

NONE, FULL, NEAREST = "before", "all parameters", "nearest matrices"
METHODS = (FULL, *(f"rank {rank}" for rank in RANKS), NEAREST)
BYTES = 16
"""Bytes per value that trains: itself, its gradient and two moments, in float32."""


def with_method(config: RunConfig, name: str) -> RunConfig:
    """The config of an adaptation by one method; the vocabulary's size must be filled in."""
    if name.startswith("rank"):
        return laid_over(config, {"lora.rank": int(name.removeprefix("rank"))})
    if name == NEAREST:
        budget = trained_values(with_method(config, f"rank {EQUAL}"))
        return laid_over(config, {"training.frozen": (*config.training.frozen, nearest(config, budget))})
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


def before(base: RunConfig, store: Store) -> RunConfig:
    """The config of a seed's student that never sees the new domain."""
    return with_files(base, store.folder / "streams", SEEN)


@dataclasses.dataclass(frozen=True)
class Adapted:
    """That student, adapted to the new domain by one method."""

    name: str

    def chosen(self, base: RunConfig, store: Store) -> RunConfig:
        """Its config, with the learning rate of the lowest validation loss; trains with each."""
        start = store.finished("adapters-base", before(base, store)).resolve()
        config = with_files(laid_over(base, ADAPTED), store.folder / "streams", (HELD_OUT,))
        config = laid_over(config, {"data.validation": 0.1, "training.start": str(start)})
        method = with_method(config, self.name)
        configs = [laid_over(method, {"training.learning_rate": rate}) for rate in RATES]
        return min(configs, key=lambda config: validation_loss(store.finished(f"adapters-{self.name}", config)))

    def __call__(self, base: RunConfig, store: Store) -> Scores:
        """Its raw scores, of the fast pass."""
        return store.scores(f"adapters-{self.name}", self.chosen(base, store), "fast")


def validation_loss(folder: epath.Path) -> float:
    """The last validation loss of a run."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [line["validation_nll"] for line in lines if "validation_nll" in line][-1]


def scores_before(base: RunConfig, store: Store) -> Scores:
    """The raw scores before adapting."""
    return store.scores("adapters-base", before(base, store), "fast")


COMPARISON = Comparison(BASE, {NONE: scores_before, **{name: Adapted(name) for name in METHODS}})


COLUMNS = (
    Column("values", "Number of values that train."),
    Column("state", "Bytes of these values, their gradients and moments."),
    Column("regret", "Expected cost per step above that of the true probabilities' decisions."),
    Column("minus all", "Regret minus that of training all parameters, paired by seed."),
)


def adapters_table(regrets: Mapping[str, Measured], rates: Mapping[str, Sequence[float]]) -> Table:
    """One row per method; `rates` are the learning rates that validation chose, by seed."""

    def cells(name: str) -> tuple[str, ...]:
        started = laid_over(BASE, {"training.start": "adapters-base"})
        values = 0 if name == NONE else trained_values(with_method(started, name))
        regret = regrets[name]
        return (
            f"{values:,}",
            f"{values * BYTES / 2**20:.2f} MiB" if values else "",
            regret.over_seeds(4),
            "" if name == FULL else (regret - regrets[FULL]).over_seeds(4, "+"),
        )

    chosen = "; ".join(f"{name}: {', '.join(f'{rate:g}' for rate in of_seeds)}" for name, of_seeds in rates.items())
    seeds = len(regrets[FULL].values)
    note = f"Means over {seeds} seeds with 95 % t intervals. Learning rates chosen, by seed: {chosen}."
    return table(f"Adapting to {HELD_OUT}", COLUMNS, {"": {name: name for name in regrets}}, cells, note)


def simulated(comparison: Comparison, store: Store) -> Table:
    """Trains the base of every seed, adapts it by every method, and compares regrets on the new domain's streams."""
    regrets, point = {}, comparison.base.decision
    for name, of_seeds in comparison.scores(store).items():
        own = [costs(only(scores, (HELD_OUT,)), point, calibrator="platt") for scores in of_seeds]
        regrets[name] = Costs.measured(own, "expected", FAST) - Costs.measured(own, "expected", BAYES)
    rates = {
        name: [method.chosen(of_seed(comparison.base, seed), store).training.learning_rate for seed in comparison.seeds]
        for name, method in comparison.variants.items()
        if isinstance(method, Adapted)
    }
    return adapters_table(regrets, rates)


def on_votes(material: Material, run: Run, steps: int, resamples: int) -> list[Table]:
    """The same on people's votes: a table per signal, pooled over the outer folds, with paired differences."""
    store = Store(run.cache)
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
    method = with_method(dataclasses.replace(config, student=with_start(config).student), name)
    rate = (TIMES if method.lora.rank else 1) * config.training.learning_rate
    changed = dataclasses.replace(config, training=method.training, lora=method.lora)
    return laid_over(changed, {"training.learning_rate": rate})


def define_flags() -> None:
    """Defines the command-line flags."""
    workdir_flag()
    flags.DEFINE_string("weights", None, "SmolLM2's weights, for people's votes in the simulator's place.")
    flags.DEFINE_string("source", None, "Folder with ProactiveBench's repository, for people's votes.")
    flags.DEFINE_integer("steps", 32, "Number of training steps per fold on people's votes.", lower_bound=1)
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Trains and compares."""
    options = flags.FLAGS
    check_together(
        "weights without source: the folder with ProactiveBench's repository",
        "source steps resamples without weights: those of a student that learns people's votes",
    )
    if options.source:
        run = Run(epath.Path(options.workdir) / "votes", weights=options.weights)
        return on_votes(read("proactivebench", options.source), run, options.steps, options.resamples)
    with open_store() as store:
        return [simulated(COMPARISON, store)]
