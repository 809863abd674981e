"""Counts what XLA's compiler makes of decoding on an NVIDIA GPU that need not be there, per token.

    launch/compiler.sh && python benchmarks/kernels.py               # Qwen3-8B on an H200, by XLA and by our kernels
    python benchmarks/kernels.py --target=a100-80gb --rows 1 --attention=cudnn

After a cached prompt, one token per row is written, as benchmarks/accelerator.py measures it. It prints the kernels of
one token, the bytes that they read and write, and the least time for those bytes at the peak of the memory, beside
those of the weights and the cache alone, which any program must read. Shapes are compiled, no weights exist.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any, NamedTuple


class Count(NamedTuple):
    """What one token of every row takes."""

    kernels: int
    bytes: int  # read and written by all kernels
    least: int  # bytes of the weights and of the cache


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200", help="GPU to compile for, as --plan names it")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64], help="numbers of rows to decode in parallel")
    parser.add_argument("--attention", nargs="+", default=["xla", "cudnn"], help="values of student.attention")
    parser.add_argument(
        "--preset", default="qwen3_8b", help="name of a constructor in prism_jax.student.presets, or tiny"
    )
    parser.add_argument("--length", type=int, default=4096, help="tokens per prompt")
    parser.add_argument("--new", type=int, default=128, help="number of tokens to decode")
    parser.add_argument("--one", action="store_true", help="count in this process, in which the compiler is")
    return parser.parse_args(arguments)


def count(target: str, preset: str, attention: str, rows: int, length: int, new: int) -> Count:
    """Compiles the decoder for a GPU, and counts what its loop does."""
    import jax
    import jax.numpy as jnp
    from accelerator import student
    from jax.sharding import SingleDeviceSharding
    from next_token import empty_cache

    from prism_jax.student import constrained
    from prism_jax.student.kv_cache import Segment, unstack_layers
    from prism_jax.student.qwen3 import Qwen3
    from prism_jax.student.start import Start
    from prism_jax.training.compiled import accounting, hlo
    from prism_jax.training.compiled.absent import OPTIONS, absent_mesh, as_on_cuda
    from prism_jax.training.compiled.cards import card

    chip, model = card(target), Qwen3(student(preset, attention))
    place = SingleDeviceSharding(absent_mesh(chip, (1, 1, 1), chip.memory).devices.item())

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), tree)

    def array(*shape: int, dtype: Any = jnp.int32) -> Any:
        return placed(jax.ShapeDtypeStruct(shape, dtype))

    vocabulary, spans = model.config.vocab_size, [constrained.Span((), new)]
    automaton = object.__new__(constrained.DeviceAutomaton)
    steps = array(1, vocabulary, dtype=jnp.int8)
    automaton.arrays, automaton.least = (steps, steps, array(vocabulary)), 1
    with as_on_cuda():
        params = placed(jax.eval_shape(unstack_layers, model.abstract_params()))
        own, past = (
            placed(jax.eval_shape(lambda size=size: empty_cache(model, rows, size)))
            for size in (constrained.room(spans), length)
        )
        trunk = Segment(past, array(rows, length, dtype=bool))
        start = Start(own, array(rows), 0, array(rows, vocabulary, dtype=jnp.float32), trunk)
        traced = constrained.write_program.trace(*constrained._arguments(model, params, start, spans, automaton))
        compiled = traced.lower(lowering_platforms=("cuda",)).compile(OPTIONS)
    program = hlo.parse(compiled.as_text())
    loops = (part for each in program.computations.values() for part in each.instructions if part.op == "while")
    body = max((loop.called[0] for loop in loops), key=lambda name: len(program.computations[name].instructions))
    found = list(accounting.kernels(hlo.Program(program.computations, body)))
    read = jax.tree.leaves((params, own, past))
    least = sum(leaf.size * leaf.dtype.itemsize for leaf in read)
    if not model.config.tied:
        least -= params["embedding"].size * params["embedding"].dtype.itemsize  # a token reads only one row of it
    return Count(len(found), sum(kernel.bytes for kernel in found), least)


def line(args: argparse.Namespace, attention: str, rows: int, answer: Count) -> str:
    """One row of the table."""
    from prism_jax.training.compiled.cards import CARDS

    speed = CARDS[args.target].bandwidth / 1000
    return (
        f"{args.target:10s} {attention:6s} {rows:3d} rows: {answer.kernels:4d} kernels, {answer.bytes / 1e9:.3f} GB, "
        f"{answer.bytes / answer.least:.3f} x the weights and the cache; {answer.bytes / speed:.2f} ms, "
        f"{answer.least / speed:.2f} ms for them alone"
    )


def main() -> None:
    """Counts each combination in a process of its own, which has the compiler and frees its memory."""
    args = parse()
    if args.one:
        found = count(args.target, args.preset, args.attention[0], args.rows[0], args.length, args.new)
        print(json.dumps(found))
        return
    from prism_jax.runs.machine import compiler_environment, compiler_folder, launch_settings

    if not (compiler_folder() / "jax_plugins").is_dir():
        print(f"skipped: found no compiler in {compiler_folder()}, expected launch/compiler.sh to have run")
        return
    environment = compiler_environment(launch_settings()[0])
    for attention in args.attention:
        for rows in args.rows:
            one = ["--one", f"--attention={attention}", f"--rows={rows}"]
            command = [sys.executable, __file__, *sys.argv[1:], *one]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            print(line(args, attention, rows, Count(*json.loads(done.stdout))), flush=True)


if __name__ == "__main__":
    main()
