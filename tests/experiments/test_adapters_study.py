"""The study of adapters: equal state is equal, its learning rates are those of the lowest loss, and rows are paired."""

import dataclasses
import json
import re

import jax
import pytest
from etils import epath

from prism_jax.experiments import adapters
from prism_jax.experiments.adapters import ADAPTED, EQUAL, FULL, METHODS, NEAREST, NONE, Outcome, SeedResult
from prism_jax.student.qwen3 import Qwen3
from prism_jax.training.optimization.frozen import Partition

CONFIG = dataclasses.replace(ADAPTED, training=dataclasses.replace(ADAPTED.training, start="a base"))


def test_the_nearest_matrices_have_the_state_of_the_adapters_or_less():
    budget = adapters.trained_values(adapters.with_method(CONFIG, f"rank {EQUAL}"))
    config = adapters.with_method(CONFIG, NEAREST)
    trained = adapters.trained_values(config)
    assert 0.5 * budget < trained <= budget < adapters.trained_values(CONFIG)
    part = Partition.of(Qwen3(config.student), config.training.frozen)
    last = config.student.num_layers - 1
    assert part.depth == last  # nothing below the last block trains
    assert part.trained == sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(part.split, abstract(config))))
    with pytest.raises(ValueError, match=r"^budget: found 10 values, expected at least those of one matrix"):
        adapters.nearest(CONFIG, 10)


def abstract(config):
    return Qwen3(config.student).abstract_params()


def test_every_method_takes_the_same_updates_on_the_same_streams():
    for name in METHODS:
        config = adapters.with_method(CONFIG, name)
        assert (config.training.steps, config.training.batch, config.data) == (100, 32, CONFIG.data)
        assert (config.lora.rank > 0) == name.startswith("rank")


def test_the_rate_of_the_lowest_validation_loss_is_taken(tmp_path):
    losses = dict(zip(adapters.RATES, (0.9, 0.7, 0.8), strict=True))

    class Trained:
        def finished(self, name, config):
            folder = epath.Path(tmp_path) / f"{config.training.learning_rate}"
            folder.mkdir()
            lines = [
                {"step": 1, "validation_nll": 0.1},
                {"step": 2, "validation_nll": losses[config.training.learning_rate]},
            ]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            return folder

    config, rate = adapters.best_of_rates(CONFIG, FULL, Trained())
    assert rate == config.training.learning_rate == adapters.RATES[1]


def test_differences_are_paired_by_seed():
    def result(level):
        outcomes = {name: Outcome(level + 0.1 * (name == NEAREST), 0.2, 0.3) for name in (NONE, *METHODS)}
        return SeedResult(outcomes, dict.fromkeys((NONE, *METHODS), 8), dict.fromkeys(METHODS, 1e-3))

    (section,) = adapters.table([result(0.1), result(0.5), result(0.9)]).sections
    rows = {row.name: row.cells for row in section.rows}
    assert rows[NEAREST][3] == "+0.1000 [+0.1000, +0.1000]"
    assert re.match(r"0\.5000 \[-0\.4\d+, 1\.\d+\]", rows[FULL][2]) and rows[FULL][3] == ""
