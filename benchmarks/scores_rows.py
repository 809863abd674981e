"""Seconds and memory of the evaluation of a scores file with very many rows.

    python benchmarks/scores_rows.py                     # a million rows, `prism_jax.evaluate --scores`
    python benchmarks/scores_rows.py --rows=10000000     # minutes
    python benchmarks/scores_rows.py --command=experiments      # every table of the paper on the same file

The file is synthetic: streams of 1,000 rows in three domains and three splits, one offer at each step, and the columns
that an agent without a slow pass writes. The command runs in a process of its own, whose peak memory the operating
system counts; what the reading of the file alone needs is printed beside it.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STREAM = 1000
"""Rows of one stream."""
BATCH = 1000
"""Streams that are made and written at once."""
READ = "import sys; from prism_jax.scores import read_scores; print(len(read_scores(sys.argv[1])))"


def write(path: pathlib.Path, rows: int, seed: int = 0) -> None:
    """Writes a file of `rows` rows whose probabilities are sharper than the labels justify."""
    rng = np.random.default_rng(seed)
    writer = None
    for start in range(0, rows, STREAM * BATCH):
        table = _table(rng, np.arange(start, min(start + STREAM * BATCH, rows)))
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=STREAM * 100)
    assert writer is not None, "there is at least one row"
    writer.close()


def _table(rng: np.random.Generator, row: np.ndarray) -> pa.Table:
    number, step = np.divmod(row, STREAM)
    logits = {signal: rng.normal(-0.5, 1.5, len(row)) for signal in ("need", "accept")}
    labels = {signal: rng.random(len(row)) < 1 / (1 + np.exp(-z)) for signal, z in logits.items()}
    names = pa.array([f"stream-{i:05d}" for i in range(number[-1] + 1)])
    return pa.table(
        {
            "stream": names.take(pa.array(number)),
            "step": step,
            "candidate": np.zeros(len(row), np.int64),
            "time": 30.0 * step,
            "domain": pa.array(["coding", "daily life", "writing"]).take(pa.array(number % 3)),
            "persona": pa.array(["hasty", "patient"]).take(pa.array(number % 2)),
            "split": pa.array(["train", "calibration", "test", "test", "test"]).take(pa.array(number % 5)),
            **{f"p_{signal}_fast": 1 / (1 + np.exp(-1.5 * z)) for signal, z in logits.items()},
            **{f"y_{signal}": label.astype(np.float64) for signal, label in labels.items()},
            "tokens_fast": rng.integers(100, 4000, len(row)),
        }
    )


def measured(name: str, rows: int, command: list[str]) -> None:
    """Runs a command and prints its seconds, and the largest peak of memory among the commands so far."""
    started = time.perf_counter()
    process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{name} failed: {process.stderr[-2000:]}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    print(f"{name:>12}: {seconds:7.1f} s, {peak:8.0f} MiB at most, {peak * 2**20 / rows:6.0f} B per row", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--command", choices=("evaluate", "experiments"), default="evaluate")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "scores.parquet"
        write(file, arguments.rows)
        print(f"{arguments.rows:,} rows: {file.stat().st_size / 2**20:.0f} MiB", flush=True)
        measured("read", arguments.rows, [sys.executable, "-c", READ, str(file)])
        named = ["all"] if arguments.command == "experiments" else []
        program = [sys.executable, "-m", "prism_jax", arguments.command, *named]
        flags = [f"--scores={file}", f"--workdir={folder}/out"]
        measured(arguments.command, arguments.rows, [*program, *flags])


if __name__ == "__main__":
    main()
