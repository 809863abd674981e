"""Seconds, CPU seconds and memory of the evaluation of scores files with very many rows.

    python benchmarks/scores_rows.py                                # a million rows, every path of `evaluate --scores`
    python benchmarks/scores_rows.py --rows=10000000 --paths=exact,parts-1,parts-2,ray-2,peer      # minutes
    python benchmarks/scores_rows.py --rows=100000000 --shards=100 --paths=parts-2
    python benchmarks/scores_rows.py --paths=experiments,experiments-2  # every table of the paper on the same file
    python benchmarks/scores_rows.py --paths=answers,answers-1,answers-2  # a log of answers of as many rows

The file is synthetic: streams of 1,000 rows in three domains and three splits, one offer at each step, and the columns
that an agent without a slow pass writes. A path is `read`, `exact` (all rows in memory), `parts-N` (part by part in N
processes), `ray-N` (N Ray tasks), `experiments` (the paper's tables, in memory), `experiments-N` (part by part),
`counterfactual` and `counterfactual-N` (the same of counterfactual costs, on a file in which a policy made some of the
offers), `answers`, `answers-N` and `answers.ray-N` (the same of a log of answers, whose people differ in how often they
accept), or `peer`: the same policies, costs and intervals by a short script of NumPy and pandas (scores_rows_peer.py),
with `peer-areas` the intervals of AUDBC, too. Each runs in processes of its own, whose memory is added up ten times a
second: pages that several of them share count in each. After `exact` or `answers`, the
largest difference of any number of its JSON file from that of each other path is printed, apart from the ends of
intervals, with the largest bound.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STREAM = 1000
"""Rows of one stream."""
BATCH = 1000
"""Streams that are made and written at once."""
ANSWERS = "--columns=person=stream,time=time,score=p_accept_fast,accepted=y_accept"
COMMAND = (
    "import sys; from prism_jax.__main__ import main; from prism_jax.runs import running; "
    "running.MOST_EXACT_ROWS = int(sys.argv.pop(1)); main(sys.argv[1:])"
)
"""The command, which holds up to so many rows in memory."""
READ = "import sys; from prism_jax.scores import read_scores; print(len(read_scores(sys.argv[1])))"


def write(
    path: pathlib.Path, rows: int, seed: int = 0, first: int = 0, *, logged: bool = False, own: float = 0.0
) -> None:
    """Writes a file of `rows` rows, from number `first` on, whose probabilities are sharper than the labels justify.

    Where it is `logged`, offers were made with known propensities, and only these were answered. `own` is the standard
    deviation of the own rates of the streams, in log-odds of acceptance.
    """
    rng = np.random.default_rng(seed)
    writer = None
    for start in range(first, first + rows, STREAM * BATCH):
        table = _table(rng, np.arange(start, min(start + STREAM * BATCH, first + rows)), own)
        table = _logged(rng, table) if logged else table
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=STREAM * 100)
    assert writer is not None, "there is at least one row"
    writer.close()


def _table(rng: np.random.Generator, row: np.ndarray, own: float) -> pa.Table:
    number, step = np.divmod(row, STREAM)
    logits = {signal: rng.normal(-0.5, 1.5, len(row)) for signal in ("need", "accept")}
    rates = {"need": 0.0, "accept": own * np.random.default_rng(0).normal(size=number[-1] + 1)[number]}
    labels = {signal: rng.random(len(row)) < 1 / (1 + np.exp(-z - rates[signal])) for signal, z in logits.items()}
    names = pa.array([f"stream-{i:06d}" for i in range(number[-1] + 1)])
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


def _logged(rng: np.random.Generator, table: pa.Table) -> pa.Table:
    propensity = 0.1 + 0.8 * table["p_accept_fast"].to_numpy()
    made = rng.random(len(table)) < propensity
    table = table.set_column(
        table.schema.get_field_index("y_accept"), "y_accept", pa.array(table["y_accept"].to_numpy(), mask=~made)
    )
    return table.append_column("logged", pa.array(made)).append_column("propensity", pa.array(propensity))


def measured(name: str, rows: int, command: list[str]) -> float:
    """Runs a command and prints its seconds, those of CPUs, and the peak of the memory of all its processes."""
    started, before, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN), 0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(0.1)
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{name} failed: {errors.read()[-2000:].decode(errors='replace')}")
    print(
        f"{name:>12}: {seconds:7.1f} s, {cpu:7.1f} CPU s, {peak >> 20:8,} MiB at most, {peak / rows:6.0f} B per row",
        flush=True,
    )
    return seconds


def _memory(leader: int) -> int:
    """Bytes in memory of all processes of a session."""
    total = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:  # its session
                total += int((process / "statm").read_text().split()[1]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):  # it has ended
            continue
    return total


def command_of(path: str, source: str, folder: str) -> list[str]:
    """The command of a path."""
    module = [sys.executable, "-c", COMMAND]
    files = [f"--scores={source}", f"--workdir={folder}"]
    kind, _, workers = path.partition("-")
    kind, _, runner = kind.partition(".")
    if kind == "read":
        return [sys.executable, "-c", READ, source]
    if kind == "peer":
        script = pathlib.Path(__file__).with_name("scores_rows_peer.py")
        return [sys.executable, str(script), source, *([workers] if workers else [])]
    module += ["0" if workers else str(10**12)]
    how = [f"--workers={workers}"] if workers else []
    if kind == "experiments":
        return [*module, "experiments", "all", *files, *how]
    if kind == "answers":
        how += [f"--runner={runner}"] if runner else []
        return [*module, "evaluate", *files, *how, ANSWERS]
    if kind == "counterfactual":
        return [*module, kind, f"--scores={source}", f"--out={folder}", *how]
    return [*module, "evaluate", *files, *how, *(["--runner=ray"] if kind == "ray" else [])]


def difference(first: pathlib.Path, second: pathlib.Path) -> str:
    """The largest difference between numbers of two evaluations, relative to 1 or to the number where it is larger."""
    name = "acceptance_log.json" if first.name == "answers" else "evaluation.json"
    one, two = (dict(_numbers(json.loads((folder / name).read_text()))) for folder in (first, second))
    gaps = {name: abs(one[name] - two[name]) / max(1.0, abs(one[name])) for name in one if name in two}
    worst = max(gaps, key=lambda name: gaps[name])
    bounds = {name: bound for name, bound in two.items() if name.startswith(".bounds")}
    return f"largest difference {gaps[worst]:.1e} ({worst}), largest bound {max(bounds.values(), default=0.0):.1e}"


def _numbers(tree: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _numbers(value, f"{name}.{key}")
    elif isinstance(tree, list):
        for i, value in enumerate(tree):
            yield from _numbers(value, f"{name}[{i}]")
    elif isinstance(tree, int | float) and not isinstance(tree, bool) and not name.endswith(("low", "high")):
        yield name, float(tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=1, help="files of equal size")
    parser.add_argument("--paths", default="read,exact,parts-1,parts-2")
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source, outputs = pathlib.Path(scratch) / "scores", {}
        source.mkdir()
        for shard in range(arguments.shards):
            first, last = (arguments.rows * i // arguments.shards // STREAM * STREAM for i in (shard, shard + 1))
            write(source / f"scores-{shard:04d}.parquet", last - first, shard, first)
        log = pathlib.Path(scratch) / "log.parquet"
        if "counterfactual" in arguments.paths:
            write(log, arguments.rows, logged=True)
        answers = pathlib.Path(scratch) / "answers.parquet"
        if "answers" in arguments.paths:
            write(answers, arguments.rows, own=0.7)
        size = sum(path.stat().st_size for path in source.iterdir())
        print(f"{arguments.rows:,} rows in {arguments.shards} files: {size >> 20:,} MiB", flush=True)
        one = str(source / "scores-0000.parquet") if arguments.shards == 1 else str(source)
        for _ in range(arguments.repeat):
            for path in arguments.paths.split(","):
                folder = pathlib.Path(scratch) / path
                of = {"counterfactual": str(log), "answers": str(answers)}.get(path.split("-")[0].split(".")[0], one)
                measured(path, arguments.rows, command_of(path, of, str(folder)))
                if path == "exact" or path.startswith(("parts", "ray", "answers")):
                    outputs[path] = folder
        for path, folder in outputs.items():
            base = "answers" if path.startswith("answers") else "exact"
            if path != base and base in outputs:
                print(f"{path:>12}: {difference(outputs[base], folder)}")


if __name__ == "__main__":
    main()
