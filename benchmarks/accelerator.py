"""Compares training and decoding of a large student with transformers + PyTorch on the same GPU.

    python benchmarks/accelerator.py                                    # Qwen3-8B with random weights, 80 GB
    python benchmarks/accelerator.py --preset=qwen3_0_6b --rows=8
    python benchmarks/accelerator.py --preset=tiny --length=64 --new=8  # any machine: checks that it runs

Every measurement has its own process, which has the card to itself. Figures are absolute, so the name of the card, the
date and the versions are printed with them. The training step is next-token prediction on full rows. Ours is the step
of configs/qwen3_8b_a100.py (float32 masters in two halves, Adam's second moment factored). Theirs has bfloat16 weights
and AdamW states, which is less, because masters would not fit. Model FLOPs utilisation counts neither rematerialised
layers nor what a causal mask hides (`prism_jax.training.logs.flops`). Decoding must read every weight and the cache at
least once per token; "roofline" is the time for that as a share of the measured time.

One NVIDIA H200, 2026-11-27, JAX 0.11.2 on CUDA 13, torch 2.11.0+cu130, transformers 5.17.0, `--batches 1` and
`--run decode ours 8`: the step takes 1.739 s (MFU 46.7 %, 68.8 GiB), theirs 2.251 s (36.1 %, 78.7 GiB); 128 tokens take
0.804 s (roofline 52.3 %), theirs 4.440 s (9.5 %), and for eight rows 0.796 s.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import pathlib
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# Memory bandwidth in bytes per second, by the start of the device's name; from the vendors' data sheets.
BANDWIDTH = {
    "NVIDIA A100-SXM4-80GB": 2039e9,
    "NVIDIA A100 80GB PCIe": 1935e9,
    "NVIDIA A100": 1555e9,
    "NVIDIA H100 PCIe": 2000e9,
    "NVIDIA H100": 3350e9,
    "NVIDIA H200": 4800e9,
}
TURNS = 5
RECIPE = pathlib.Path(__file__).parents[1] / "configs" / "qwen3_8b_a100.py"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--preset", default="qwen3_8b", help="name of a constructor in prism_jax.student.presets, or tiny"
    )
    parser.add_argument("--rows", type=int, default=4, help="rows per training step")
    parser.add_argument("--length", type=int, default=4096, help="tokens per row and per prompt")
    parser.add_argument("--new", type=int, default=128, help="number of tokens to decode")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="numbers of rows to decode in parallel")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)  # what a child process measures
    return parser.parse_args(arguments)


def student(preset: str) -> Any:
    """The architecture in bfloat16, with every block rematerialised."""
    from prism_jax.student import StudentConfig, presets

    how = {"dtype": "bfloat16", "param_dtype": "bfloat16", "remat": "full"}
    if preset == "tiny":
        return StudentConfig(
            vocab_size=512, hidden_dim=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=128, **how
        )
    return getattr(presets, preset)(**how)


def recipe() -> Any:
    """The training settings of configs/qwen3_8b_a100.py, with a fixed number of steps."""
    from prism_jax.runtime.dataclass_config import from_config_dict
    from prism_jax.training.run_config import RunConfig

    training = from_config_dict(RunConfig, runpy.run_path(str(RECIPE))["get_config"]()).training
    return dataclasses.replace(training, steps=1000, epochs=0.0)


def median_seconds(run: Callable[[], Any]) -> float:
    """Median time of several calls in seconds, after two calls that compile and warm up."""
    run(), run()
    seconds = []
    for _ in range(TURNS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def train_ours(args: argparse.Namespace) -> dict[str, Any]:
    """Measures one step of next-token training."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from next_token import make_next_token_step

    from prism_jax.student import Qwen3
    from prism_jax.student.sharding import make_mesh
    from prism_jax.training.optimization.step import init_state

    model, training = Qwen3(student(args.preset)), recipe()
    step = make_next_token_step(model, training)
    state = init_state(model, training, make_mesh(), jax.random.key(0))
    random = np.random.default_rng(0)
    tokens = jnp.asarray(random.integers(model.config.vocab_size, size=(args.rows, args.length + 1)))

    def run() -> None:
        nonlocal state
        state, value = step(state, tokens)
        value.block_until_ready()

    return {"seconds": median_seconds(run), **ours_facts()}


def decode_ours(args: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Measures greedy decoding after a prompt, without the prefill."""
    import jax
    import numpy as np
    from next_token import Greedy, prefill

    from prism_jax.student import Qwen3
    from prism_jax.student.kv_cache import unstack_layers

    model = Qwen3(student(args.preset))
    params = unstack_layers(jax.jit(model.init)(jax.random.key(0)))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    if not model.config.tied:
        size -= params["embedding"].nbytes  # a token reads only one row of it
    tokens = np.random.default_rng(0).integers(model.config.vocab_size, size=(batch, args.length))
    tokens = tokens.astype(np.int32)
    write, seconds = Greedy(model, params, args.new), []
    for _ in range(TURNS + 2):
        logits, cache = jax.block_until_ready(prefill(model, params, tokens, args.new))
        cached = sum(leaf.nbytes for leaf in jax.tree.leaves(cache))
        begin = time.perf_counter()
        write(logits, cache, args.length)
        seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds[2:]), "bytes": size + cached, **ours_facts()}


def ours_facts() -> dict[str, Any]:
    """The device, its peak memory, and the version."""
    import jax

    device = jax.devices()[0]
    stats = device.memory_stats() or {}
    return {"device": device.device_kind, "peak": stats.get("peak_bytes_in_use"), "versions": f"jax {jax.__version__}"}


def their_model(preset: str) -> tuple[Any, Any]:
    """A transformers model of the same shape with random bfloat16 weights, and the device it is on."""
    import torch
    import transformers

    from prism_jax.student.weights.architecture import config_to_hf

    place = "cuda" if torch.cuda.is_available() else "cpu"
    content = config_to_hf(student(preset), "bfloat16")
    config = transformers.AutoConfig.for_model(content.pop("model_type"), **content)
    with torch.device(place):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    return model, place


def train_theirs(args: argparse.Namespace) -> dict[str, Any]:
    """Measures one step of next-token training with gradient checkpointing."""
    import torch

    model, place = their_model(args.preset)
    model.train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    tokens = torch.randint(model.config.vocab_size, (args.rows, args.length), device=place)

    def run() -> None:
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if place == "cuda":
            torch.cuda.synchronize()

    return {"seconds": median_seconds(run), **their_facts()}


def decode_theirs(args: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Measures greedy decoding after a prompt: the time for `new` tokens minus that for one."""
    import torch

    model, place = their_model(args.preset)
    tokens = torch.randint(model.config.vocab_size, (batch, args.length), device=place)

    def write(count: int) -> float:
        begin = time.perf_counter()
        model.generate(tokens, max_new_tokens=count, min_new_tokens=count, do_sample=False)
        if place == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    model.eval()
    write(args.new), write(1)
    return {"seconds": statistics.median(write(args.new) - write(1) for _ in range(TURNS)), **their_facts()}


def their_facts() -> dict[str, Any]:
    """The device, its peak memory, and the versions."""
    import torch
    import transformers

    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    if not torch.cuda.is_available():
        return {"device": "cpu", "peak": None, "versions": versions}
    return {"device": torch.cuda.get_device_name(), "peak": torch.cuda.max_memory_allocated(), "versions": versions}


SIDES: dict[str, Callable[..., dict[str, Any]]] = {
    "train ours": train_ours,
    "train theirs": train_theirs,
    "decode ours": decode_ours,
    "decode theirs": decode_theirs,
}


def measure(arguments: list[str], *what: str) -> dict[str, Any]:
    """Measures in a separate process; after a failure, returns the last line of its error."""
    command = [sys.executable, __file__, *arguments, "--run", *what]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        return {"failed": (process.stderr.strip().splitlines() or ["no message"])[-1][:150]}
    return json.loads(process.stdout.strip().splitlines()[-1])


def line(name: str, tokens: int, measurement: dict[str, Any], share: str = "") -> str:
    """One row of the table."""
    if "failed" in measurement:
        return f"{name:24s} failed: {measurement['failed']}"
    peak = "-" if measurement["peak"] is None else f"{measurement['peak'] / 2**30:.1f} GiB"
    speed = tokens / measurement["seconds"]
    origin = f"{measurement['device']}, {measurement['versions']}"
    return f"{name:24s} {measurement['seconds']:9.3f} s {speed:10.0f} tokens/s {share:16s} {peak:>10s}  {origin}"


def longest_match(table: dict[str, float], device: str) -> float | None:
    """The entry whose name is the longest prefix of the device's name."""
    return next((table[name] for name in sorted(table, key=len, reverse=True) if device.startswith(name)), None)


def main() -> None:
    """Runs both sides in separate processes and prints the results."""
    args = parse()
    if args.run:
        kind, side, *rest = args.run
        print(json.dumps(SIDES[f"{kind} {side}"](args, *map(int, rest))))
        return
    from prism_jax.training.logs import flops

    config = student(args.preset)
    tokens = args.rows * args.length
    pairs = args.rows * args.length * (args.length + 1) // 2
    needed = flops.flops(config, flops.Work(tokens, pairs, responses=tokens, labels=0))
    print(f"{args.preset}, {args.rows} rows of {args.length} tokens; {datetime.date.today()}")
    for side in ("ours", "theirs"):
        measurement = measure(sys.argv[1:], "train", side)
        best = flops.peak(measurement.get("device", ""))
        share = f"MFU {needed / measurement['seconds'] / best:.1%}" if best else ""
        print(line(f"training step, {side}", tokens, measurement, share), flush=True)
    for batch in args.batches:
        read = None
        for side in ("ours", "theirs"):
            measurement = measure(sys.argv[1:], "decode", side, str(batch))
            read = measurement.get("bytes", read)
            best = longest_match(BANDWIDTH, measurement.get("device", ""))
            share = f"roofline {args.new * read / best / measurement['seconds']:.1%}" if best and read else ""
            print(line(f"decode, batch {batch}, {side}", batch * args.new, measurement, share), flush=True)


if __name__ == "__main__":
    main()
