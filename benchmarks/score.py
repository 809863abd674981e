"""Decisions per second of `python -m prism_jax score`, with an exported student of random weights.

    python benchmarks/score.py                                            # a tiny student, on one and two workers
    python benchmarks/score.py --preset=qwen3_0_6b --dtype=bfloat16 --workers=1 --batch=64 --streams=4000      # one GPU
    python benchmarks/score.py --host --workers=1 --streams=2000          # a student that answers at once

The streams are simulated, and read by the fast pass. Every run is a whole command, which loads the model and compiles
its programs first. So it runs on `--streams` streams and on a quarter of them, and the rate is that of the difference.
The vocabulary is that of a small tokenizer, so the student is smaller than its preset by most of the embedding.
With `--host` nothing is computed on a device, so that the CPU seconds are those of what feeds it.

One NVIDIA H200, 2026-11-27, JAX 0.11.2 on CUDA 13, the second command with 2,000 streams: 441 million parameters,
41.2 s in all, without the start 3,830 decisions/s and 45,303 tokens/s, half of the time the check of the streams, which
then took four times as long.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np
from etils import epath

from prism_jax.runs.export import TURN_END, export_base, write_tokenizer
from prism_jax.scores.joining import read_all
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.student import presets
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig, make_tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import save_hf
from prism_jax.training.compiled.cards import peak

TINY = StudentConfig(hidden_dim=128, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=32, mlp_dim=384)
CONTEXT = 4096
HOST = """
import sys
import numpy as np
from prism_jax.__main__ import main
from prism_jax.student.scoring import fast
fast._reading = lambda slots: lambda params, rows: (np.zeros(rows.need_slot.shape), np.zeros(rows.accept_slot.shape))
main(sys.argv[1:])
"""
"""The command line, with a student that answers at once."""


def make(folder: pathlib.Path, preset: str, streams: int) -> int:
    """Writes an exported student and two files of streams; returns the number of its parameters."""
    drawn = [simulate(SimulatorConfig(min_events=40, max_events=60), index) for index in range(streams)]
    write_streams(epath.Path(folder) / "all.jsonl", drawn)
    write_streams(epath.Path(folder) / "quarter.jsonl", drawn[: streams // 4])
    tokenizer = make_tokenizer(drawn[:200], PromptConfig())
    config = TINY if preset == "tiny" else getattr(presets, preset)()
    model = Qwen3(dataclasses.replace(config, vocab_size=tokenizer.size, tied=True))
    params = jax.jit(model.init)(jax.random.key(0))
    weights = epath.Path(folder) / "weights"
    weights.mkdir()
    ids = {"eos_token_id": tokenizer.special(TURN_END), "pad_token_id": tokenizer.pad}
    save_hf(weights, model, params, dtype="bfloat16", **ids)
    write_tokenizer(weights, tokenizer, CONTEXT)
    export_base(weights, epath.Path(folder) / "model", dtype="bfloat16")
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def measured(folder: pathlib.Path, streams: str, host: bool, options: list[str]) -> tuple[float, float, int, int]:
    """Seconds and CPU seconds of the command on a file of streams, with its numbers of decisions and tokens."""
    out = folder / f"scored-{streams}-{time.monotonic_ns()}"
    command = [sys.executable, *(["-c", HOST] if host else ["-m", "prism_jax"]), "score"]
    command += [f"--model={folder / 'model'}", f"--workdir={out}", *options]
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, f"--streams={folder / streams}.jsonl"], check=True, stdout=subprocess.DEVNULL)
    seconds, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    scores = read_all(out)
    number, read = scores.numbered("stream")[1], np.zeros(len(scores))
    np.maximum.at(read, number, scores.tokens_fast)  # a stream is read once, up to its last decision
    return seconds, cpu, len(scores), int(read.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tiny", help="name of a constructor in prism_jax.student.presets, or tiny")
    parser.add_argument("--streams", type=int, default=4000)
    parser.add_argument("--workers", default="1,2", help="numbers of workers, one run after the other")
    parser.add_argument("--batch", type=int, default=16, help="streams per forward pass")
    parser.add_argument("--dtype", default="float32", help="of the parameters, float32 or bfloat16")
    parser.add_argument("--host", action="store_true", help="compute nothing on the device")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        process = [sys.executable, __file__, "--make", str(folder), arguments.preset, str(arguments.streams)]
        made = subprocess.run(process, check=True, capture_output=True, text=True)  # so that it holds no memory
        device, parameters = made.stdout.strip().rsplit(" ", 1)
        print(f"{datetime.date.today()}, {device}, JAX {jax.__version__}: {int(parameters):,} parameters", flush=True)
        for workers in arguments.workers.split(","):
            options = [f"--workers={workers}", f"--batch={arguments.batch}", f"--dtype={arguments.dtype}"]
            few, all_of_them = (measured(folder, streams, arguments.host, options) for streams in ("quarter", "all"))
            seconds, cpu, decisions, tokens = (large - small for large, small in zip(all_of_them, few, strict=True))
            needed = 2 * int(parameters) * tokens / seconds  # products alone; the head is read at the answers
            print(
                f"{workers} workers: {all_of_them[0]:.1f} s for {arguments.streams:,} streams; without the start "
                f"{decisions / seconds:,.0f} decisions/s, {tokens / seconds:,.0f} tokens/s, "
                f"{decisions / cpu:,.0f} decisions per CPU second"
                + (f", MFU {needed / best:.1%}" if (best := peak(device)) else ""),
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        count = make(pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        print(jax.devices()[0].device_kind, count)
    else:
        main()
