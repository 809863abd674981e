"""Settings that a run cannot be made of are refused in one line, which begins with their name."""

import dataclasses
import re

import pytest
import tiny

from prism_jax.student.lora import LoraConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run_config import MeshConfig, PackingConfig, TrainingConfig

TEACHER = dataclasses.replace(tiny.CONFIG.simulator, teacher=True)
WITHOUT = "found 1 with data.validation = 0, expected 0 or a share"
BATCH = "training.batch: found 4, expected a multiple of accumulation"
MASTER = (
    "training.master: found 'split' with student.param_dtype = 'float32', expected 'none' or parameters in 'bfloat16'"
)


def of_training(**settings):
    return dataclasses.replace(tiny.CONFIG.training, **settings)


# By section of the config: its settings, and how the error begins.
ALONE = {
    of_training: (
        (dict(start_sha256="0" * 64), "start_sha256: found 0000000000000000"),
        (dict(start_sha256="abc", start="x"), "start_sha256: found 'abc', expected 64 hexadecimal digits"),
        (dict(start_blocks=2), "start_blocks: found 2 without start"),
        (dict(start_blocks=-1, start="x"), "start_blocks: found -1, expected at least 0"),
        (dict(accumulation=0), "accumulation: found 0, expected at least 1"),
    ),
    TrainingConfig: tuple(
        (dict(steps=steps, epochs=epochs), f"steps: found {steps} with epochs = {epochs}, expected one of them above 0")
        for steps, epochs in ((0, 0.0), (5, 1.0), (-1, 1.0), (5, -1.0))
    ),
    PackingConfig: (
        (dict(max_decisions=-1), "max_decisions: found -1, expected at least 0"),
        (dict(max_decisions=2, row_tokens=9), "max_decisions: found 2 with row_tokens = 9, expected one of them to"),
        (dict(max_decisions=2, unit="decisions"), "max_decisions: found 2 with unit = 'decisions', expected 0 or 1"),
    ),
    LossConfig: ((dict(slow=-1.0), "slow: found"), (dict(slow_width=0.0), "slow_width: found")),
    PathwayConfig: (
        (dict(keep=0.0), "keep: found 0.0, expected a share in (0, 1]"),
        (dict(slow=1.1), "slow: found 1.1, expected a share in [0, 1]"),
        (dict(alpha=-0.1), "alpha: found -0.1, expected a share in [0, 1]"),
        (dict(beta=0.0), "beta: found 0.0, expected above 0"),
        (dict(token_cost=-1.0), "token_cost: found -1.0, expected at least 0"),
        (dict(name="sft", alpha=0.5), "alpha: found 0.5 with plain losses, expected 0"),
        (dict(name="schema_sft", losses="plain"), "losses: found 'plain', expected 'as_named': schema_sft has no loss"),
        (dict(own_fields=1.0), "own_fields: found 1.0 with slow = 0"),
    ),
    LoraConfig: (
        (dict(rank=-1), "rank: found -1, expected at least 0"),
        (dict(rank=2, alpha=0.0), "alpha: found 0.0, expected above 0"),
        (dict(rank=2, dropout=1.0), "dropout: found 1.0, expected a number in [0, 1)"),
        (dict(rank=2, targets=("q_proj", "head")), "targets: found head, expected some of q_proj"),
        (dict(rank=2, targets=()), "targets: found none with head = 'frozen', expected something to train"),
        (dict(rank=2, tokens=(1,)), "tokens: found (1,) with head = 'frozen', expected none or head = 'slots'"),
    ),
}
# Sections of the tiny run that do not fit each other.
TOGETHER = (
    (dict(training=of_training(keep_best=1)), f"training.keep_best: {WITHOUT}"),
    (dict(training=of_training(evaluate_every=1)), f"training.evaluate_every: {WITHOUT}"),
    (dict(training=of_training(accumulation=3)), f"{BATCH} 3 x data 1 x fsdp 1"),
    (dict(training=of_training(accumulation=2), mesh=MeshConfig(data=4)), f"{BATCH} 2 x data 4"),
    (dict(training=of_training(master="split")), MASTER),
    (
        dict(simulator=TEACHER, pathway=PathwayConfig(alpha=0.5), loss=LossConfig(need_target="given_accept")),
        "loss.need_target: found 'given_accept' with pathway.alpha = 0.5",
    ),
    (dict(pathway=PathwayConfig(slow=0.6, own_fields=0.5)), "training.start: found none with pathway.own_fields"),
    (dict(pathway=PathwayConfig(name="dft")), "training.start: found none, expected the workdir of an rdc_sft run"),
    (dict(lora=LoraConfig(rank=1)), "training.start: found none with lora.rank above 0, expected the weights"),
    (dict(lora=LoraConfig(start="x")), "lora.start: found x with lora.rank = 0, expected the rank of these adapters"),
)
CASES = [
    *((section, *case) for section, cases in ALONE.items() for case in cases),
    *((lambda **sections: dataclasses.replace(tiny.CONFIG, **sections), *case) for case in TOGETHER),
]


@pytest.mark.parametrize(("make", "settings", "message"), CASES, ids=[message for *_, message in CASES])
def test_they_are_named(make, settings, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make(**settings)
