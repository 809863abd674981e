"""One program on many processes: joining them, before JAX looks for devices, and compiling once for all runs.

Loads no part of ours, so that a main can call it first.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import platform

import jax
from absl import flags
from jax.experimental import multihost_utils


def define_flags() -> None:
    """Defines the flags of a main that runs on several processes or compiles programs worth keeping."""
    flags.DEFINE_bool(
        "distributed", False, "Join the other processes; under SLURM and on TPU pods JAX finds them by itself."
    )
    flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, where the environment does not say it.")
    flags.DEFINE_integer("processes", None, "Number of processes, where the environment does not say.", lower_bound=1)
    flags.DEFINE_integer("process", None, "Number of this process, from 0.", lower_bound=0)
    flags.DEFINE_string(
        "compilation_cache",
        None,
        "Folder of compiled programs, kept between runs; `off` keeps none. By default JAX_COMPILATION_CACHE_DIR, or a "
        "folder of this machine's kind in the user's cache.",
    )


def start() -> None:
    """Does what the flags of `define_flags` say; call it before anything else of JAX.

    Raises:
      ValueError: when some of the flags that name the processes are given and others are not.
      RuntimeError: when the other processes can't be reached.
    """
    folder = cache_folder(flags.FLAGS.compilation_cache, dict(os.environ))
    jax.config.update("jax_compilation_cache_dir", folder)
    if not flags.FLAGS.distributed:
        return
    given = {name: flags.FLAGS[name].value for name in ("coordinator", "processes", "process")}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) not in (0, len(given)):
        raise ValueError(f"{missing[0]}: found none, expected all of --{', --'.join(given)} or none of them")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(given["coordinator"], given["processes"], given["process"])
    except ValueError as error:
        raise ValueError(
            f"distributed: found no cluster that JAX knows ({error}), expected SLURM's environment or --coordinator, "
            "--processes and --process"
        ) from error


def is_first() -> bool:
    """Whether this is the process that writes files and speaks."""
    return jax.process_index() == 0


def wait(name: str) -> None:
    """Waits until all processes have come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def cache_folder(asked: str | None, environment: dict[str, str]) -> str | None:
    """Where compiled programs are kept; None keeps none.

    Args:
      asked: A folder, `off`, or None for the default.
      environment: Of the process.
    """
    if asked == "off":
        return None
    if asked or environment.get("JAX_COMPILATION_CACHE_DIR"):
        return asked or environment["JAX_COMPILATION_CACHE_DIR"]
    base = environment.get("XDG_CACHE_HOME") or str(pathlib.Path(environment.get("HOME", "~")).expanduser() / ".cache")
    return str(pathlib.Path(base) / "prism_jax" / _machine())


def _machine() -> str:
    """A name for machines that can run each other's programs: homes are shared between unlike ones."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        kind = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        kind = ""
    return f"{platform.machine()}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}"
