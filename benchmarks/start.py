"""Processor seconds and memory of whole processes: `agent` to a decision, and `serve` until it is ready.

    python benchmarks/start.py exported                      # an exported student
    python benchmarks/start.py exported --before=CHECKOUT    # and, beside it, another version of the package

A decision is a process that reads one event and ends: at a cost of a false alarm that no offer is worth, and at one
where every offer is. `serve` ends when it says that it is ready. A cold cache is an empty folder, and warm is the
folder that the process before has left. Seconds are of all processors, user and system; of `--turns` warm runs, the
versions in turn, the median is printed with the extremes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

EVENT = {"stream": "ann", "time": 12.0, "text": "The parser fails."}
SILENT, OFFER = ("--c_fa=1000000", "--c_fn=1"), ("--c_fa=1", "--c_fn=1000000")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG with SIGKILL


def spent(package: str, *arguments: str) -> tuple[float, float]:
    """Processor seconds and the highest memory (MB) of one command of a package, which ends it where it is ready."""
    command = [sys.executable, "-m", "prism_jax", *arguments]
    environment = os.environ | {"PYTHONPATH": package}
    # With -m, the package of the current folder comes before that of PYTHONPATH.
    options = {"preexec_fn": _end_with_parent} if sys.platform == "linux" else {}
    with subprocess.Popen(
        command, cwd=package, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options
    ) as process:
        assert process.stderr is not None, "it is a pipe"
        said = []
        for line in process.stderr:
            said.append(line.decode())
            if said[-1].startswith("serving "):
                process.kill()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not any(line.startswith("serving ") for line in said):
        raise RuntimeError(f"{' '.join(command)} has ended: {''.join(said[-5:])}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def main() -> None:
    """Measures, and prints a line per command and version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="exported student")
    parser.add_argument("--before", help="checkout of another version")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    here = str(pathlib.Path(__file__).resolve().parent.parent)
    before = {"before": str(pathlib.Path(options.before).resolve())} if options.before else {}
    packages = before | {"this version": here}
    with tempfile.TemporaryDirectory() as folder:
        (events := pathlib.Path(folder, "events.jsonl")).write_text(json.dumps(EVENT) + "\n")
        model = f"--model={pathlib.Path(options.model).resolve()}"
        decides = ("agent", model, f"--input={events}", "--policy=dynamic")
        commands = {
            "silent decision": (*decides, *SILENT),
            "offer": (*decides, *OFFER),
            "serve": ("serve", model, "--port=0"),
        }
        for name, command in commands.items():
            found: dict[str, list[tuple[float, float]]] = {version: [] for version in packages}
            for _ in range(1 + options.turns):
                for version, package in packages.items():
                    cache = pathlib.Path(folder, f"{name}-{version}")
                    found[version].append(spent(package, *command, f"--compilation_cache={cache}"))
            for version, ((cold, peak), *warm) in found.items():
                seconds = sorted(one for one, _ in warm)
                print(
                    f"{name}, {version}: cold {cold:.1f} s, {peak:.0f} MB; warm {statistics.median(seconds):.2f} s "
                    f"[{seconds[0]:.2f}, {seconds[-1]:.2f}], {max(memory for _, memory in warm):.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
