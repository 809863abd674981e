"""Whether two checkouts compute the same numbers: the same commands in both, and all that they write compared.

    python benchmarks/same_numbers.py --before=CHECKOUT --after=CHECKOUT     # made tables, logs, refusals: 10 minutes
    python benchmarks/same_numbers.py --before=CHECKOUT --after=CHECKOUT --only=plain,logs
    python benchmarks/same_numbers.py --before=CHECKOUT --after=CHECKOUT --only=quickstart,paper,rehearsal  # an hour

Inputs are made here, from seeds, but for the three public logs (docs/acceptance_logs.md), whose folder LOGS names. What
a clean checkout of a commit wrote is kept in --out and not computed again, but for a commit beside itself. Whole
numbers are equal, floats within 1e-12, absolute or relative, in texts too (Markdown, CSV, HTML, what is printed), and
so are the words between them. Lines are matched by their words, so that one more is one difference, and empty ones are
left out. Neither images are compared, nor what says when, where and how long.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import fnmatch
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EXCEPTIONS: dict[str, tuple[float, str]] = {
    "*/acceptance_log.json:*.auroc.[hl]*": (0.0016, "intervals of AUROC are those of merged placements"),
    "*/acceptance_log.json:.by_answers.0.difference.brier.[hl]*": (math.inf, "a difference of 0 has no interval"),
    "*context/out/acceptance_log.json:*": (1e-6, "fits on context columns have another tolerance"),
    "studies/people/simulated/acceptance_log.json:*": (1e-6, "so have those of its simulated log"),
    "studies/printed-2.txt:line 46*": (math.inf, "a difference of 0 has no interval"),
    "large/*:.ratios.rows.*.audbc_[hl]*": (1e-4, "pairs of a stream that is drawn twice (docs/maths.md, 10)"),
    "large/*:line *, number *": (1.01e-4, "so do those printed"),
    "*/by_answers.*:line [25]*": (math.inf, "so does its row"),
    "log/printed-?.txt:line [24][19]*": (math.inf, "so does its printed row"),
    "coauthor/printed-0.txt:line 39*": (math.inf, "so does its printed row"),
    "with_context/printed-0.txt:line 45*": (math.inf, "so does its printed row"),
    "refusals/printed-4.txt:line 3*": (math.inf, "names stream and step in place of the row"),
}
"""Differences that are meant: by a pattern of NAME/FILE:KEY, how far a number may be, and why."""
TOLERANCE = 1e-12
NUMBER = re.compile(r"(?<![\w.])[-−]?\d{1,15}(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\d)")
BYTES = re.compile(r'"((?=[^"]*[+/])(?:[\w+/]{32}){2,}(?:[\w+/]{11}=|[\w+/]{22}==)?)"')
IGNORED = (
    "*.png",
    "*.svg",
    "*.pdf",
    "*.npy",
    "*.lock",
    "*.array_record*",
    "*/checkpoints/*",
    "*/trainings/*",
    "*/tensorboard/*",
    "*/timings*",
)
UNSTABLE = re.compile(
    r"\d s\b|seconds|minutes|commit\b|command|python|machine|packages|versions|\bport\b", re.IGNORECASE
)
"""Keys and lines that say when, where and how long."""
COMMANDS = pathlib.Path(__file__).with_suffix(".txt")
SLOW_GROUPS = ("context", "studies", "quickstart", "paper", "rehearsal")


def commands() -> dict[str, list[str]]:
    """The commands of each name."""
    found: dict[str, list[str]] = {}
    for line in COMMANDS.read_text().splitlines():
        if not line.startswith("#"):
            name, command = line.split(maxsplit=1)
            found.setdefault(name, []).append(command)
    return found


def make_inputs(folder: pathlib.Path) -> None:
    """Writes the made tables and logs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("plain", "slow", "ties", "folds", "people", "partly", "large"):
        pq.write_table(pa.Table.from_pydict(scores(name)), folder / f"{name}.parquet", row_group_size=500)
    rows = pa.Table.from_pydict(scores("alone")).to_pylist()
    (folder / "alone.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "refused.jsonl").write_text('{"stream": "a", "step": 0, "p_need_fast": 1.2, "p_accept_fast": 0.5}\n')
    events = ({"stream": f"s{i % 3}", "time": 40 * i, "text": f"parser.py crashes, {i}."} for i in range(30))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "log.csv").write_text(log(made=False))
    (folder / "logged.csv").write_text(log(made=True))


def scores(name: str) -> dict[str, Any]:
    """The columns of a scores table of 150 streams of 20 steps; `large` has 10,000 streams."""
    streams = 10_000 if name == "large" else 150
    steps = 20 * streams
    rng = np.random.default_rng([*name.encode()])
    stream, step, candidate = (
        axis.ravel() for axis in np.indices((streams, 20, 2 if name in ("slow", "partly") else 1))
    )
    rows, at, split = len(stream), stream * 20 + step, np.array(["calibration", "test", "test", "train", "test"])
    need = (rng.normal(-0.4, 1.3, steps) + 0.5 * rng.normal(size=streams).repeat(20))[at]
    accept = rng.normal(-0.2, 1.3, rows)
    accepted, known = (rng.random(rows) < sigmoid(accept)).astype(float), rng.random(rows) < 0.95
    table: dict[str, Any] = {"stream": [f"s{i}" for i in stream], "step": step, "candidate": candidate}
    table |= {"time": 30.0 * step, "domain": np.array(["coding", "daily life", "writing"])[stream % 3]}
    table |= {"persona": np.array(["hasty", "patient"])[stream % 2], "tokens_fast": rng.integers(100, 900, steps)[at]}
    table |= {"fold": stream % 5} if name == "folds" else {"split": split[stream % 5]}
    table["p_need_fast"] = sigmoid(1.5 * need + rng.normal(size=steps)[at])
    table["p_accept_fast"] = sigmoid(1.5 * accept + rng.normal(size=rows))
    table["y_need"] = (rng.random(steps)[at] < sigmoid(need)).astype(float)
    if name in ("slow", "folds", "partly"):
        slow = np.full(rows, True) if name == "slow" else stream % 5 != 3
        slow |= name == "folds"
        table["p_need_slow"] = pa.array(sigmoid(1.2 * need + 0.3 * rng.normal(size=steps)[at]), mask=~slow)
        table["p_accept_slow"] = pa.array(sigmoid(1.2 * accept + 0.3 * rng.normal(size=rows)), mask=~slow)
        table["tokens_slow"] = pa.array(rng.integers(200, 3000, steps)[at], mask=~slow)
    if name == "slow":
        table |= {"p_need_true": sigmoid(need), "p_accept_true": sigmoid(accept)}
    elif name == "partly":  # need given acceptance, and slow columns without values on the training split
        table["need_target"] = ["given_accept"] * rows
    elif name == "ties":
        table |= {signal: np.round(table[signal], 2) for signal in ("p_need_fast", "p_accept_fast")}
    elif name == "people":
        table["person"] = [f"p{i % 5 + 5 * (i // 25)}" for i in stream]
        table["propensity"] = 0.1 + 0.8 * table["p_accept_fast"]
        table["logged"] = known = rng.random(rows) < table["propensity"]
        table["other"] = (table["p_accept_fast"] > 0.6).astype(float)
    elif name == "alone":
        del table["p_need_fast"], table["y_need"]
        known = np.full(rows, True)
    return table | {"y_accept": pa.array(accepted, mask=~known)}


def log(made: bool) -> str:
    """A log of 1,200 offers to 24 people as CSV; where `made`, a policy of known propensities made some of them."""
    rng = np.random.default_rng(int(made))
    lines, own = ["who,when,known,said,taken,hour,app,made,e"], rng.normal(size=24)
    for i in range(1200):
        z, hour = rng.normal(), int(rng.integers(24))
        e = 0.2 + 0.6 * sigmoid(z) if made else 1.0
        taken = str(int(rng.random() < sigmoid(z + own[i % 24] + 0.5 * (hour > 12))))
        said = "" if not made and rng.random() < 0.03 else f"{sigmoid(2 * z + 0.5):.6f}"
        shown = rng.random() < e
        row = (f"u{i % 24}", 60 * i, 60 * i + 45, said, taken if shown else "", hour, f"a{i % 5}", int(shown), e)
        lines.append(",".join(map(str, row)))
    return "\n".join(lines) + "\n"


def sigmoid(z: Any) -> Any:
    """The probability of log-odds."""
    return 1 / (1 + np.exp(-z))


def state_of(checkout: pathlib.Path) -> str:
    """The commit of a checkout, and "-changed" where it holds more."""
    ask = (["git", "-C", str(checkout), *words] for words in (["rev-parse", "--short", "HEAD"], ["status", "-s"]))
    commit, changed = (subprocess.run(a, capture_output=True, text=True, check=True).stdout.strip() for a in ask)
    return f"{commit}-changed" if changed else commit


def outputs(checkout: pathlib.Path, name: str, side: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    """The folder of what the commands of a name write in a checkout, run unless the commit's are kept there.

    Those that fail are said in lines beside it, and nothing of them is kept.
    """
    folder, wanted = side / name, "\n".join(commands()[name])
    marker = folder / "commands.txt"
    if "-" not in side.name and marker.exists() and marker.read_text() == wanted:
        return folder, []
    make_inputs(side)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for needed in ("configs", "launch"):
        (folder / needed).symlink_to(checkout / needed)
    environment = os.environ | {"PYTHONPATH": str(checkout), "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
    failed = []
    for i, command in enumerate(commands()[name]):
        words = command.replace("$LOGS", os.environ.get("LOGS", "")).split()
        program = [sys.executable, "-m", *([] if words[0] == "studies" else ["prism_jax"]), *words]
        run = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)
        error = run.stderr.splitlines()[-1] if run.returncode and run.stderr else ""
        if run.returncode and name != "refusals":
            failed.append(f"{side.name}: {command}: exit status {run.returncode}: {error}")
        (folder / f"printed-{i}.txt").write_text(f"exit status {run.returncode}\n{run.stdout}\n{error}\n")
    if not failed:
        marker.write_text(wanted)
    return folder, failed


def aligned(first: pathlib.Path, second: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What two files say, by where it stands in the first; a line of texts that only one of them has is left to it."""
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    paths = first, second
    if not (first.exists() and second.exists()) or first.suffix in (".parquet", ".json", ".jsonl"):
        for path, side in zip(paths, sides, strict=True):
            side.update(values(path) if path.exists() else {"": "no such file"})
        return sides
    texts = [list(enumerate(path.read_text(errors="replace").splitlines(), 1)) for path in paths]
    texts = [[(number, line) for number, line in lines if line.strip()] for lines in texts]
    shapes = [[NUMBER.sub("#", line) for _, line in lines] for lines in texts]
    for kind, i, end, j, other_end in difflib.SequenceMatcher(None, *shapes, autojunk=False).get_opcodes():
        same = kind == "equal" or (kind == "replace" and end - i == other_end - j)
        places = [f"line {number}" for number, _ in texts[0][i:end]]
        other = places if same else [f"line {number} of the second" for number, _ in texts[1][j:other_end]]
        for side, lines, names in ((sides[0], texts[0][i:end], places), (sides[1], texts[1][j:other_end], other)):
            for (_, line), name in zip(lines, names, strict=True):
                side.update(of_line(line, name, printed=first.name.startswith("printed")))
    return sides


def values(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Every number and text of a file, by where it stands."""
    if path.suffix == ".parquet":
        yield from leaves(pq.read_table(path).to_pydict(), "")
    elif path.suffix == ".json":
        yield from leaves(json.loads(path.read_text()), "")
    elif path.suffix == ".jsonl":
        yield from leaves([json.loads(line) for line in path.read_text().splitlines()], "")
    else:
        for line, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
            yield from of_line(text, f"line {line}", printed=path.name.startswith("printed"))


def of_line(text: str, place: str, *, printed: bool) -> Iterator[tuple[str, Any]]:
    """The words and the numbers of a line of text; nothing of one that says when, where and how long."""
    if printed and text.startswith("{"):
        yield from leaves(json.loads(text), place)
        return
    if UNSTABLE.search(text) and len(text) < 1000:
        return
    for i, match in enumerate(BYTES.finditer(text)):
        yield from leaves(np.frombuffer(base64.b64decode(match[1]), "<f8").tolist(), f"{place}, floats {i}")
    text = BYTES.sub('""', text)
    yield place, NUMBER.sub("#", text)
    for i, found in enumerate(NUMBER.findall(text)):
        number = found.replace("−", "-").replace(",", "")
        yield f"{place}, number {i}", float(number) if re.search("[.e]", number) else int(number)


def leaves(tree: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The values of nested JSON, but those that say when, where and how long."""
    if isinstance(tree, dict | list):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if not UNSTABLE.fullmatch(str(name)):
                yield from leaves(value, f"{key}.{name}")
    else:
        yield key, tree


def equal(a: Any, b: Any, tolerance: float = TOLERANCE) -> bool:
    """Whether two values are the same, floats within the tolerance, absolute or relative."""
    if {type(a), type(b)} <= {float, int} and float in (type(a), type(b)):
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
    return type(a) is type(b) and a == b


def differences(before: pathlib.Path, after: pathlib.Path) -> tuple[list[str], int, int, int]:
    """One line for each difference of two folders, and the numbers of files, of values, and of meant differences."""
    lines, compared, meant = [], 0, 0
    names = sorted(
        {str(path.relative_to(side)) for side in (before, after) for path in side.rglob("*.*") if path.is_file()}
    )
    names = [name for name in names if not any(fnmatch.fnmatch(f"/{name}", pattern) for pattern in IGNORED)]
    for name in names:
        first, second = aligned(before / name, after / name)
        for key in dict.fromkeys([*first, *second]):
            a, b, place = first.get(key, "nothing"), second.get(key, "nothing"), f"{before.name}/{name}:{key}"
            compared += 1
            if equal(a, b):
                continue
            if any(
                fnmatch.fnmatch(place, pattern) and (most == math.inf or equal(a, b, most))
                for pattern, (most, _) in EXCEPTIONS.items()
            ):
                meant += 1
            else:
                lines.append(f"{place}: {a!r} before, {b!r} after")
    return lines, len(names), compared, meant


def main() -> int:
    """Runs, compares and prints; the exit status is 1 where something differs or a command fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=pathlib.Path, required=True, help="Checkout of the earlier commit.")
    parser.add_argument("--after", type=pathlib.Path, required=True, help="Checkout of the later commit.")
    parser.add_argument("--only", help=f"Names of commands, of {', '.join(commands())}.")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "same_numbers")
    parser.add_argument("--most", type=int, default=20, help="Differences to print for each name.")
    options = parser.parse_args()
    before, after, out = (path.resolve() for path in (options.before, options.after, options.out))
    sides = [out / state_of(before), out / state_of(after)]
    sides[1] = out / f"{sides[1].name}-again" if sides[0] == sides[1] else sides[1]
    total = np.zeros(4, int)
    for name in options.only.split(",") if options.only else [name for name in commands() if name not in SLOW_GROUPS]:
        if "LOGS" not in os.environ and any("$LOGS" in command for command in commands()[name]):
            print(f"{name}: left out, as LOGS does not name the folder of the public logs")
            continue
        (first, failed), (second, failed_too) = outputs(before, name, sides[0]), outputs(after, name, sides[1])
        lines, *counts = differences(first, second)
        lines = [*failed, *failed_too, *lines]
        print(f"{name}: {counts[0]} files, {counts[1]:,} values, {len(lines):,} differences", flush=True)
        print("".join(f"  {line}\n" for line in lines[: options.most]), end="")
        total += [len(lines), *counts]
    print("{1:,} files, {2:,} values compared: {0:,} differences, {3:,} more that are meant".format(*total))
    return int(total[0] > 0)


if __name__ == "__main__":
    sys.exit(main())
