"""Runs fast tests against the package with one seeded fault at a time, and names the faults that no test notices.

    python tests/mutants/run.py [NAME ...] [--jobs=2] [--all] [--out=FILE.jsonl] [--root=DIR]

Each fault of `faults.py` is applied to a copy of the checkout, in which pytest runs the tests that the fault names, and
with --all every fast test if these pass. The exit status is 1 if a vital fault escapes, and 2 if a fault is stale or
its tests cannot run. `--baseline` runs the same tests without a fault; they must pass, or what they catch is no fault.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any

from faults import FAULTS, Fault

MOST_SECONDS = 3600  # of one run of pytest; a fault may make a loop endless
RUNNING: set[int] = set()  # process groups, which end with this program
Stage = tuple[Sequence[str], int]  # test files or folders, and the number of processes that run them


def occurrences(root: pathlib.Path, fault: Fault) -> int:
    """How often the code that a fault changes occurs in its file: once, unless the fault is stale."""
    path = root / "prism_jax" / fault.path
    return path.read_text(encoding="utf-8").count(fault.old) if path.is_file() else 0


def copy_checkout(root: pathlib.Path, place: pathlib.Path) -> None:
    """Copies what git does not ignore, and the package's bytecode, which stays valid as times are kept."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    bytecode = (path.relative_to(root) for path in (root / "prism_jax").rglob("__pycache__/*.pyc"))
    for name in [*filter(None, listed.split("\0")), *bytecode]:
        if (root / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, place / name)
    if (root.parent / "shared").is_dir():  # data beside the checkout, which some tests read
        (place.parent / "shared").symlink_to((root.parent / "shared").resolve())


def apply(place: pathlib.Path, fault: Fault) -> None:
    """Changes the package in a copy of the checkout."""
    if (count := occurrences(place, fault)) != 1:
        raise ValueError(f"found its code {count} times in prism_jax/{fault.path}, expected it once")
    path = place / "prism_jax" / fault.path
    path.write_text(path.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        stale.unlink()


def failed_test(place: pathlib.Path, tests: Sequence[str], processes: int) -> str | None:
    """Runs pytest in a copy of the checkout and returns the first test that fails; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not study"]
    command += [f"--basetemp={place.parent / 'tmp'}", *([f"-n{processes}"] if processes > 1 else []), *tests]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    pipes["env"] = os.environ | {"PYTHONPATH": str(place)}  # comes before the folder of an editable installation
    with subprocess.Popen(command, cwd=place, start_new_session=True, **pipes) as process:
        RUNNING.add(process.pid)
        try:
            output, _ = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end after {MOST_SECONDS} s"
        finally:
            stop(process.pid)
    if process.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
    if process.returncode in (1, 2) and found:  # 2 is an error while tests are collected
        return found[1]
    raise ValueError(f"pytest ended with {process.returncode}, expected a passed or a failed test: {output[-600:]}")


def stop(group: int) -> None:
    """Ends a run of pytest with all that it started."""
    RUNNING.discard(group)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def first_failure(root: pathlib.Path, fault: Fault | None, stages: Iterable[Stage]) -> str | None:
    """The first test that fails in a copy of the checkout with a fault, or without one, stage by stage."""
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        place = pathlib.Path(folder) / "checkout"
        copy_checkout(root, place)
        if fault is not None:
            apply(place, fault)
        return next((found for stage in stages if (found := failed_test(place, *stage)) is not None), None)


def try_all(faults: Sequence[Fault], given: argparse.Namespace, done: dict[str, str | None]) -> list[str]:
    """Tries each fault, prints its result and keeps it in `done` and the file; returns what could not be tried."""
    everything: list[Stage] = [(["tests"], 2 if given.jobs == 1 else 1)] if given.all else []

    def timed(fault: Fault) -> tuple[str | None, float]:
        began, own = time.monotonic(), [f"tests/{name}" for name in fault.tests]
        return first_failure(given.root, fault, [(own, 1), *everything]), time.monotonic() - began

    problems, pool = [], concurrent.futures.ThreadPoolExecutor(given.jobs)
    try:
        futures = {pool.submit(timed, fault): fault for fault in faults}
        for future in concurrent.futures.as_completed(futures):
            fault = futures[future]
            try:
                by, seconds = future.result()
            except ValueError as error:
                problems.append(f"{fault.name}: {error}")
                continue
            done[fault.name] = by
            words = f"caught  {fault.name} by {by}" if by else f"ESCAPED {fault.name}{', vital' * fault.vital}"
            print(f"{words} ({seconds:.0f} s)", flush=True)
            if given.out:
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"name": fault.name, "caught_by": by, "seconds": round(seconds, 1)}) + "\n")
    finally:  # also after Ctrl-C
        pool.shutdown(wait=False, cancel_futures=True)
        for group in tuple(RUNNING):
            stop(group)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Which seeded faults do the fast tests notice?")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Faults to try; all by default.")
    parser.add_argument("--jobs", type=int, default=2, help="Number of faults that are tried at once.")
    parser.add_argument("--all", action="store_true", help="Run all fast tests where a fault's own tests pass.")
    parser.add_argument("--out", type=pathlib.Path, help="File to append results to; faults in it are not run again.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2], help="The checkout.")
    parser.add_argument("--list", action="store_true", help="Print the faults without running a test.")
    parser.add_argument("--baseline", action="store_true", help="Run the tests of the faults once, without any fault.")
    given = parser.parse_args()
    given.root = given.root.resolve()
    if unknown := set(given.names) - {fault.name for fault in FAULTS}:
        parser.error(f"found no fault {', '.join(sorted(unknown))}, expected names that --list prints")
    chosen = [fault for fault in FAULTS if fault.name in given.names or not given.names]
    problems = {one.name: f"{one.name}: stale in {one.path}" for one in chosen if occurrences(given.root, one) != 1}
    if given.list:
        print(*(f"{'vital' * one.vital:5} {problems.get(one.name, one.name)}: {one.why}" for one in chosen), sep="\n")
        return 2 if problems else 0
    if given.baseline:
        own = sorted({f"tests/{name}" for fault in chosen for name in fault.tests})
        failure = first_failure(given.root, None, [(["tests"] if given.all else own, given.jobs)])
        print(f"without any fault: {failure or 'all tests passed'}")
        return 2 if failure else 0
    lines = given.out.read_text(encoding="utf-8").splitlines() if given.out and given.out.exists() else []
    done: dict[str, str | None] = {one["name"]: one["caught_by"] for one in map(json.loads, lines)}
    wrong = [*problems.values()]
    wrong += try_all([one for one in chosen if one.name not in done | problems], given, done)
    escaped = [fault for fault in chosen if fault.name in done and done[fault.name] is None]
    tried, vital = sum(fault.name in done for fault in chosen), sum(fault.vital for fault in escaped)
    said = [*wrong, *(f"escaped: {fault.name} ({fault.path}): {fault.why}" for fault in escaped)]
    print(*said, f"{tried - len(escaped)} of {tried} caught, {len(escaped)} escaped, {vital} of them vital", sep="\n")
    return 2 if wrong else 1 if vital else 0


if __name__ == "__main__":
    sys.exit(main())
