"""Runs fast tests against the package with one seeded fault at a time, and names the faults that no test notices.

    python tests/mutants/run.py [NAME ...] [--vital] [--jobs=2] [--all] [--out=FILE.jsonl]

Each fault of `faults/` is applied to a copy of the checkout, in which pytest runs the tests that the fault names; if
these pass, with --all, then every fast test. The exit status is 1 if a vital fault escapes, and 2 if a fault is stale
or its tests cannot run.
`--baseline` runs the same tests without a fault; they must pass, or what they catch is no fault.

Every run of pytest is a fork of this process, which has imported the libraries already, but not the package.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
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
import traceback
from collections.abc import Iterator, Sequence

import hypothesis.extra.numpy  # noqa: F401
import jax.numpy  # noqa: F401
import jaxtyping  # noqa: F401
import pandas  # noqa: F401
import pytest
import scipy.ndimage
import scipy.optimize
import scipy.stats  # noqa: F401
from faults import FAULTS, Fault

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_SECONDS = 3600  # of one run of pytest; a fault may make a loop endless
UNTESTED = "pytest ended with"
EVERYTHING = ("tests", "--ignore=tests/mutants")  # a test there fails with every fault, as it looks for its code


@dataclasses.dataclass
class Trial:
    """A fault, or None, whose tests run in a copy of the checkout, stage after stage until one fails."""

    fault: Fault | None
    place: pathlib.Path
    stages: list[list[str]]  # arguments of pytest
    began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return "no fault" if self.fault is None else self.fault.name

    @property
    def output(self) -> pathlib.Path:
        """The file with what pytest prints."""
        return self.place.parent / "output"


def problem(fault: Fault) -> str | None:
    """Why a fault cannot be tried: its code must occur once in its file, and its tests must exist."""
    path = ROOT / "prism_jax" / fault.path
    if (count := path.read_text(encoding="utf-8").count(fault.old) if path.is_file() else 0) != 1:
        return f"{fault.name}: found its code {count} times in prism_jax/{fault.path}, expected it once"
    missing = [name for name in fault.tests if not (ROOT / "tests" / name).exists()]
    return f"{fault.name}: found no tests/{missing[0]}" if missing else None


def copy_checkout(place: pathlib.Path) -> None:
    """Copies what git does not ignore, and links the data beside the checkout, which some tests read."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    if (ROOT.parent / "shared").is_dir():
        (place.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())


def write_code(place: pathlib.Path, fault: Fault, text: str) -> None:
    """Writes the file of a fault, and removes its bytecode, which may seem to be that of the new text."""
    path = place / "prism_jax" / fault.path
    path.write_text(text, encoding="utf-8")
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        stale.unlink()


def start(trial: Trial) -> int:
    """Runs pytest with the next stage's arguments in a fork, in a process group of its own; returns its number."""
    arguments = ["-x", "-q", "-rfE", "-p", "no:cacheprovider", "-m", "not slow and not study"]
    arguments += [f"--basetemp={trial.place.parent / 'tmp'}", *trial.stages.pop(0)]
    if (pid := os.fork()) != 0:
        return pid
    status = 3
    try:
        os.setsid()
        signal.alarm(MOST_SECONDS)
        for number, name in enumerate((os.devnull, trial.output, trial.output)):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | (os.O_APPEND if number == 2 else os.O_TRUNC)), number)
        os.chdir(trial.place)
        sys.path[0], sys.argv = str(trial.place), ["pytest", *arguments]
        os.environ["PYTHONPATH"] = str(trial.place)  # comes before the folder of an editable installation
        os.environ["PYTEST_XDIST_WORKER"] = "gw0"  # the tests then keep compiled programs outside of `basetemp`
        status = int(pytest.main(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def failed_test(trial: Trial, status: int) -> str | None:
    """The test that failed in a run of pytest that has ended, or why there is none to name; None if all passed."""
    if status == 0:
        return None
    if status == -signal.SIGALRM:
        return f"no end after {MOST_SECONDS} s"
    output = trial.output.read_text(encoding="utf-8", errors="replace")
    name = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
    if status in (1, 2) and name:  # 2 is an error while tests are collected
        return name[1]
    return f"{UNTESTED} {status}, expected a passed or a failed test: {output[-600:]}"


def stop(group: int) -> None:
    """Ends a run of pytest with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def try_all(
    faults: Sequence[Fault | None], given: argparse.Namespace, tests: Sequence[str] = ()
) -> Iterator[tuple[Trial, str | None]]:
    """Tries the faults and yields each with the test that caught it, or None, or why its tests could not run.

    Args:
      faults: The faults; None is the package without a fault.
      given: The command line.
      tests: Files to test instead of those of the fault.
    """
    waiting, running, original = list(faults), dict[int, Trial](), {}
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        free = [pathlib.Path(folder) / str(job) / "checkout" for job in range(min(given.jobs, len(waiting)))]
        for place in free:
            copy_checkout(place)
        try:
            while waiting or running:
                while waiting and free:
                    fault, place = waiting.pop(0), free.pop()
                    own = list(tests) if fault is None else [f"tests/{name}" for name in fault.tests]
                    stages = [own, *([[*EVERYTHING]] if given.all else [])]
                    trial = Trial(fault, place, stages)
                    if fault is not None:
                        original[place] = (place / "prism_jax" / fault.path).read_text(encoding="utf-8")
                        write_code(place, fault, original[place].replace(fault.old, fault.new))
                    running[start(trial)] = trial
                pid, status = os.wait()
                stop(pid)
                trial = running.pop(pid)
                by = failed_test(trial, os.waitstatus_to_exitcode(status))
                if by is None and trial.stages:
                    running[start(trial)] = trial
                    continue
                if trial.fault is not None:
                    write_code(trial.place, trial.fault, original[trial.place])
                free.append(trial.place)
                yield trial, by
        finally:  # also after Ctrl-C
            for pid in running:
                stop(pid)


def main() -> int:
    parser = argparse.ArgumentParser(description="Which seeded faults do the fast tests notice?")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Faults to try; all by default.")
    parser.add_argument("--vital", action="store_true", help="Try the vital faults only.")
    parser.add_argument("--jobs", type=int, default=2, help="Number of faults that are tried at once.")
    parser.add_argument("--all", action="store_true", help="Run all fast tests where a fault's own tests pass.")
    parser.add_argument("--out", type=pathlib.Path, help="File to append results to; faults in it are not run again.")
    parser.add_argument("--list", action="store_true", help="Print the faults without running a test.")
    parser.add_argument("--baseline", action="store_true", help="Run the tests of the faults once, without any fault.")
    given = parser.parse_args()
    if unknown := set(given.names) - {fault.name for fault in FAULTS}:
        parser.error(f"found no fault {', '.join(sorted(unknown))}, expected names that --list prints")
    chosen = [fault for fault in FAULTS if fault.name in given.names or not given.names]
    chosen = [fault for fault in chosen if fault.vital or not given.vital]
    wrong = {fault.name: words for fault in chosen if (words := problem(fault))}
    if given.list:
        print(*(f"{'vital' * one.vital:5} {wrong.get(one.name, one.name)}: {one.why}" for one in chosen), sep="\n")
        return 2 if wrong else 0
    if given.baseline:
        own = sorted({f"tests/{name}" for fault in chosen for name in fault.tests})
        failure = next(by for _, by in try_all([None], given, own))
        print(f"without any fault: {failure or 'all tests passed'}")
        return 2 if failure else 0
    lines = given.out.read_text(encoding="utf-8").splitlines() if given.out and given.out.exists() else []
    done: dict[str, str | None] = {one["name"]: one["caught_by"] for one in map(json.loads, lines)}
    for trial, by in try_all([one for one in chosen if one.name not in done | wrong], given):
        seconds = time.monotonic() - trial.began
        if by and by.startswith(UNTESTED):
            wrong[trial.name] = f"{trial.name}: {by}"
            continue
        done[trial.name] = by
        vital = ", vital" * (trial.fault is not None and trial.fault.vital)
        words = f"caught  {trial.name} by {by}" if by else f"ESCAPED {trial.name}{vital}"
        print(f"{words} ({seconds:.0f} s)", flush=True)
        if given.out:
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": trial.name, "caught_by": by, "seconds": round(seconds, 1)}) + "\n")
    escaped = [fault for fault in chosen if fault.name in done and done[fault.name] is None]
    tried, vital_escaped = sum(fault.name in done for fault in chosen), sum(fault.vital for fault in escaped)
    said = [*wrong.values(), *(f"escaped: {fault.name} ({fault.path}): {fault.why}" for fault in escaped)]
    count = f"{tried - len(escaped)} of {tried} caught, {len(escaped)} escaped, {vital_escaped} of them vital"
    print(*said, count, sep="\n")
    return 2 if wrong else 1 if vital_escaped else 0


if __name__ == "__main__":
    sys.exit(main())
