"""Runs a config's training step on the GPUs of this machine, beside what XLA's compiler says of it.

    launch/measure.sh --config=configs/qwen3_8b_a100.py --target=a100-80gb   # DRY_RUN=1 prints the commands
    python benchmarks/step.py --config=configs/quickstart.py                 # any machine: checks that it runs

It prints a line of JSON with the card, the date and the versions, the seconds per step (median of TURNS, after two) and
the highest memory in use; the plan of the same step where --target names the card; and how far fused attention is from
XLA's in values and gradients. Weights are random and rows hold random tokens, of the sizes that `--plan` assumes.

One NVIDIA H200, 2026-11-27, JAX 0.11.2 on CUDA 13, with the XLA flags of launch/common.sh and without --target:
qwen3_8b_a100.py takes 1.528 s and 67.23 GiB with `student.remat=full`, 1.465 s and 73.80 GiB with `qkv`, 1.862 s and
67.58 GiB with `offload`, 1.261 s and 110.49 GiB with `flash`; qwen3_lora.py:8b takes 1.175 s and 28.92 GiB. Fused
attention (cuDNN, bfloat16) differs from XLA's by 5.4e-3 in values and at most 7.7e-3 in gradients.
"""

from __future__ import annotations

import datetime
import json
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from ml_collections import config_flags

from prism_jax.runs.machine import compile_elsewhere, launch_settings
from prism_jax.runtime import command
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.student.attention import attend, tree_mask
from prism_jax.student.dispatch import attention_path
from prism_jax.student.flash import flash_masks, flash_tree
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.packing import Packed
from prism_jax.training.compiled.cards import CARDS
from prism_jax.training.job import step_shape
from prism_jax.training.memory import fitted_here
from prism_jax.training.optimization.step import StepShape, init_state, make_step
from prism_jax.training.run_config import RunConfig

TURNS = 5


def run_step(shape: StepShape) -> dict[str, float]:
    """Seconds of a step and the highest memory in use per device, in GiB (0 where the platform does not say)."""
    state = init_state(shape.slots.model, shape.training, shape.mesh, jax.random.key(0))
    step = make_step(shape)
    batch = random_batch(shape)
    seconds = []
    for _ in range(TURNS + 2):
        start = time.perf_counter()
        state, metrics = step(state, batch)
        jax.block_until_ready((state, metrics))
        seconds.append(time.perf_counter() - start)
    peak = (shape.mesh.devices.flat[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {"seconds": statistics.median(seconds[2:]), "peak_gib": peak / 2**30}


def random_batch(shape: StepShape) -> Packed:
    """A batch of random tokens, of which each branch position sees the whole trunk."""
    random = np.random.default_rng(0)

    def fill(name: str, leaf: Any) -> jax.Array:
        if name in ("trunk", "tokens"):
            value = random.integers(shape.student.vocab_size, size=leaf.shape)
        else:
            value = np.full(leaf.shape, {"stop": shape.size.trunk, "branch": 1, "response_weight": 1}.get(name, 0))
        return jax.device_put(value.astype(leaf.dtype), leaf.sharding)

    return Packed(**{n: None if x is None else fill(n, x) for n, x in shape.batch._asdict().items()})


def attention_error(student: StudentConfig, trunk: int = 512, branches: int = 128, window: int = 32) -> list[float]:
    """Largest difference of fused attention (`flash_tree`) from XLA's `attend`, in values and in each gradient.

    Each is relative to the largest entry; random queries, keys and values of two rows.
    """
    mine = attention_path(student)
    place = jnp.arange(branches)
    mask = tree_mask(*(jnp.tile(x, (2, 1)) for x in (64 + place * 3, 1 + place // window, place * 0)), trunk, window)
    heads = (student.num_heads, student.num_kv_heads, student.num_kv_heads)
    shapes = [(2, trunk + branches, count, student.head_dim) for count in heads]
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v = (jax.random.normal(key, size, student.dtype) for key, size in zip(keys, shapes, strict=False))
    weight = jax.random.normal(keys[3], shapes[0], jnp.float32)

    def results(function: Any) -> list[jax.Array]:
        def loss(*qkv: jax.Array) -> tuple[jax.Array, jax.Array]:
            out = function(*qkv)
            return jnp.sum(out.astype(jnp.float32) * weight), out

        gradients, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)
        return [out, *gradients]

    fused = results(lambda *qkv: flash_tree(*qkv, flash_masks(mask), mine))
    plain = results(lambda *qkv: attend(*qkv, mask))
    pairs = zip(fused, plain, strict=True)
    return [float(jnp.max(jnp.abs(a - b).astype(jnp.float32)) / jnp.max(jnp.abs(b))) for a, b in pairs]


def define_flags() -> None:
    """Defines the command-line flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides.")
    flags.DEFINE_enum("target", None, list(CARDS), "The card of this machine, whose plan is printed beside.")
    flags.mark_flag_as_required("config")


def main() -> None:
    """Measures the step and prints it beside its plan."""
    config = from_config_dict(RunConfig, flags.FLAGS.config)
    shape, rows = step_shape(config)
    device = shape.mesh.devices.flat[0]
    shape = fitted_here(shape)
    facts = {"part": "step", "remat": shape.student.remat, "device": f"{shape.mesh.size} x {device.device_kind}"}
    dated = {"date": str(datetime.date.today()), "versions": f"jax {jax.__version__}", "rows_from": rows}
    print(json.dumps({**facts, **run_step(shape), **dated}), flush=True)
    if flags.FLAGS.target:
        xla, fraction = launch_settings()
        answer = compile_elsewhere(config, flags.FLAGS.target, int(CARDS[flags.FLAGS.target].memory * fraction), xla)
        if answer is None:
            raise RuntimeError("target: found no compiler for it, expected launch/compiler.sh to have run")
        plan = answer[1]
        least = 3600 / plan["updates_per_hour"]
        print(f"compiled   at least {least:.3f} s, {plan['peak_gib']:.2f} GiB, remat {plan['remat']}")
    names = ("output", "gradients of queries", "of keys", "of values")
    errors = zip(names, attention_error(shape.student), strict=True)
    print(
        f"attention  {attention_path(shape.student)} beside XLA's, relative: "
        + ", ".join(f"{name} {error:.1e}" for name, error in errors)
    )


if __name__ == "__main__":
    define_flags()
    command.start(main)
