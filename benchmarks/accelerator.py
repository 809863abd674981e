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

One NVIDIA H200, 2026-11-27, at commit d25278d0, before the products of inference were joined, and with `remat=full`;
JAX 0.11.2 on CUDA 13, torch 2.11.0+cu130, transformers 5.17.0, `--batches 1` and `--run decode ours 8`: the step
takes 1.739 s (MFU 46.7 %, 68.8 GiB), theirs 2.251 s (36.1 %, 78.7 GiB); 128 tokens take 0.804 s (roofline 52.3 %),
theirs 4.440 s (9.5 %), and for eight rows 0.796 s.
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
from collections.abc import Callable, Iterator
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
    parser.add_argument(
        "--attention", default="auto", help="student.attention; cudnn by name also writes by the project's kernels"
    )
    parser.add_argument(
        "--run", nargs="+", help="a part alone, as lines of JSON: train ours, decode ours 1 8 64, or live ours 1 16 256"
    )
    return parser.parse_args(arguments)


def student(preset: str, attention: str = "auto") -> Any:
    """The architecture in bfloat16."""
    from prism_jax.student import presets
    from prism_jax.student.model_config import StudentConfig

    how = {"dtype": "bfloat16", "param_dtype": "bfloat16", "remat": "auto", "attention": attention}
    if preset == "tiny":
        return StudentConfig(
            vocab_size=512, hidden_dim=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=128, **how
        )
    return getattr(presets, preset)(**how)


def recipe(args: argparse.Namespace) -> Any:
    """The settings of configs/qwen3_8b_a100.py with a preset as the student, for rows of the length to measure."""
    from prism_jax.runtime.dataclass_config import from_config_dict
    from prism_jax.training.run_config import RunConfig

    config = from_config_dict(RunConfig, runpy.run_path(str(RECIPE))["get_config"]())
    return dataclasses.replace(
        config,
        student=student(args.preset, args.attention),
        packing=dataclasses.replace(config.packing, context=args.length),
        training=dataclasses.replace(config.training, steps=1000, epochs=0.0, batch=args.rows),
    )


def median_seconds(run: Callable[[], Any]) -> float:
    """Median time of several calls in seconds, after two calls that compile and warm up."""
    run(), run()
    seconds = []
    for _ in range(TURNS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def train_ours(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures one step of next-token training, with what `remat=auto` keeps on this device."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from next_token import make_next_token_step

    from prism_jax.student.sharding import make_mesh
    from prism_jax.training.job import step_shape
    from prism_jax.training.memory import fitted_here
    from prism_jax.training.optimization.step import init_state

    shape = fitted_here(step_shape(recipe(args))[0])
    model, training = shape.slots.model, shape.training
    step = make_next_token_step(model, training)
    state = init_state(model, training, make_mesh(), jax.random.key(0))
    random = np.random.default_rng(0)
    tokens = jnp.asarray(random.integers(model.config.vocab_size, size=(args.rows, args.length + 1)))

    def run() -> None:
        nonlocal state
        state, value = step(state, tokens)
        value.block_until_ready()

    yield {"seconds": median_seconds(run), "remat": model.config.remat, **ours_facts()}


def inference(args: argparse.Namespace) -> tuple[Any, Any]:
    """A model of random weights, and its parameters as an engine holds them."""
    import jax

    from prism_jax.student.kv_cache import unstack_layers
    from prism_jax.student.qwen3 import Qwen3

    model = Qwen3(student(args.preset, args.attention))
    return model, unstack_layers(jax.jit(model.init)(jax.random.key(0)))


def decode_ours(args: argparse.Namespace, *batches: int) -> Iterator[dict[str, Any]]:
    """Measures greedy decoding after cached prompts, for each number of rows."""
    import jax
    import jax.numpy as jnp
    from next_token import Greedy, empty_cache

    model, params = inference(args)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    if not model.config.tied:
        size -= params["embedding"].nbytes  # a token reads only one row of it
    write = Greedy(model, params, args.new)
    for batch in batches:
        logits = jax.random.normal(jax.random.key(0), (batch, model.config.vocab_size), jnp.float32)
        cache = jax.block_until_ready(empty_cache(model, batch, args.length))  # its values do not matter for the time
        cached = sum(leaf.nbytes for leaf in jax.tree.leaves(cache)) * (1 + args.new / 2 / args.length)
        seconds = median_seconds(lambda: write(logits, cache))  # noqa: B023 (it runs at once)
        facts = ours_facts()
        best = longest_match(BANDWIDTH, facts["device"])
        yield {
            "part": "decode",
            "rows": batch,
            "seconds": seconds,
            "ms_per_token": 1000 * seconds / args.new,
            "roofline": best and args.new * (size + cached) / best / seconds,
            "bytes": size + cached,
            **facts,
        }
        del cache


def live_ours(args: argparse.Namespace, *streams: int) -> Iterator[dict[str, Any]]:
    """Measures the live engine: on each of some streams, an event is read, and the two answers of a branch after it."""
    import jax
    from student_common import NO, YES, make_live_stream

    from prism_jax.student.branches import Branch
    from prism_jax.student.engine import Engine, ReadRequest
    from prism_jax.student.pages import PAGE, page_bytes
    from prism_jax.student.qwen3 import Qwen3

    model = Qwen3(student(args.preset, args.attention))
    params = jax.jit(model.init)(jax.random.key(0))
    live, budget = make_live_stream(model.config.vocab_size), 4 * PAGE
    branch = Branch(tuple(live.head), (tuple(live.leaf),))
    memory = (budget // PAGE * max(streams) + 1) * page_bytes(model.config)
    engine = Engine(model, params, [YES, NO], budget=budget, memory=memory, batches=streams, longest=64)
    del params
    for count in sorted(streams):
        names = [f"{count}-{number}" for number in range(count)]
        for name in names:
            engine.open(name, live.system)
        turn = 0

        def read() -> None:
            nonlocal turn
            events = (live.events[(turn + place) % len(live.events)] for place in range(count))  # noqa: B023
            engine.read([ReadRequest(name, event, [branch]) for name, event in zip(names, events, strict=True)])  # noqa: B023
            turn += 1

        seconds = median_seconds(read)
        for name in names:
            engine.close(name)
        yield {
            "part": "live",
            "streams": count,
            "seconds": seconds,
            "decisions_per_second": count / seconds,
            **ours_facts(),
        }


def ours_facts() -> dict[str, Any]:
    """The device, its peak memory, the date, and the version."""
    import jax

    device = jax.devices()[0]
    stats = device.memory_stats() or {}
    return {"device": device.device_kind, "peak": stats.get("peak_bytes_in_use"), **dated(f"jax {jax.__version__}")}


def dated(versions: str) -> dict[str, str]:
    """The date beside versions."""
    return {"date": str(datetime.date.today()), "versions": versions}


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


def train_theirs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
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

    yield {"seconds": median_seconds(run), **their_facts()}


def decode_theirs(args: argparse.Namespace, batch: int) -> Iterator[dict[str, Any]]:
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
    yield {"seconds": statistics.median(write(args.new) - write(1) for _ in range(TURNS)), **their_facts()}


def their_facts() -> dict[str, Any]:
    """The device, its peak memory, and the versions."""
    import torch
    import transformers

    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    if not torch.cuda.is_available():
        return {"device": "cpu", "peak": None, **dated(versions)}
    return {"device": torch.cuda.get_device_name(), "peak": torch.cuda.max_memory_allocated(), **dated(versions)}


SIDES: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "train ours": train_ours,
    "train theirs": train_theirs,
    "decode ours": decode_ours,
    "decode theirs": decode_theirs,
    "live ours": live_ours,
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
        for found in SIDES[f"{kind} {side}"](args, *map(int, rest)):
            print(json.dumps(found), flush=True)
        return
    from prism_jax.training.compiled.cards import peak
    from prism_jax.training.logs import flops

    config = student(args.preset, args.attention)
    tokens = args.rows * args.length
    pairs = args.rows * args.length * (args.length + 1) // 2
    needed = flops.flops(config, flops.Work(tokens, pairs, responses=tokens, labels=0))
    print(f"{args.preset}, {args.rows} rows of {args.length} tokens; {datetime.date.today()}")
    for side in ("ours", "theirs"):
        measurement = measure(sys.argv[1:], "train", side)
        best = peak(measurement.get("device", ""))
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
