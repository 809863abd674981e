"""Commands that follow one another: each is printed, runs in a process of its own, and is not repeated when done."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Stage(NamedTuple):
    """One command."""

    title: str  # what it does, in words
    words: tuple[str, ...]  # the command line; `python` is this interpreter
    done: Callable[[], bool]  # says whether it was completed before
    asks: bool = False  # whether it needs the endpoint that answers
    takes: Any = None  # what it takes in earnest, where it is rehearsed


def main_of(name: str, *flags: str) -> tuple[str, ...]:
    """The command line of one of our commands, such as `label`."""
    return ("python", "-m", "prism_jax", name, *flags)


def run_stages(
    stages: Sequence[Stage],
    *,
    asks: bool | None = None,
    environment: Mapping[str, str] | None = None,
    beside: Callable[[Stage], Iterable[str]] = lambda stage: (),
) -> None:
    """Runs the stages that were not completed before: with `asks` those that need the endpoint or the others, else all.

    `stages` are all of them, by which they are numbered; `beside` gives lines to print beside a stage. RuntimeError for
    a command that fails; it has said why.
    """
    for number, stage in enumerate(stages, start=1):
        if asks is not None and stage.asks != asks:
            continue
        where = f"[{number}/{len(stages)}] {stage.title}"
        done = stage.done()
        print(f"{where}: done before" if done else f"\n{where}", flush=True)
        for line in beside(stage):
            print(f"    {line}", flush=True)
        if done:
            continue
        print(f"$ {shlex.join(stage.words)}", flush=True)
        began = time.monotonic()
        status = run(stage.words, environment).returncode
        if status:
            raise RuntimeError(f"[{number}/{len(stages)}] {shlex.join(stage.words[:4])}: ended with status {status}")
        print(f"{where}: {time.monotonic() - began:.0f} s", flush=True)


def run(
    words: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a command line in a process that ends with this one, however this one ends; options are subprocess's."""
    own = [sys.executable if words[0] == "python" else words[0], *words[1:]]
    if sys.platform == "linux":
        own = [sys.executable, "-c", _ENDS_WITH_PARENT, *own]
    return subprocess.run(own, env=environment, check=False, text=True, **options)


# prctl(2) with PR_SET_PDEATHSIG and SIGKILL, which an execve keeps. Elsewhere than on Linux a command goes on alone.
_ENDS_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
