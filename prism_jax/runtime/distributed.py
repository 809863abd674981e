"""Runs one program in several processes, and keeps compiled programs between runs.

Processes must be joined before JAX looks for devices. A main can call this module first, because it imports nothing
else of prism_jax, and loads JAX where it is used: a flag is refused without it.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import platform
import stat

from absl import flags, logging


def define_flags() -> None:
    """Defines the flags of a main that runs in several processes or keeps compiled programs."""
    flags.DEFINE_bool(
        "distributed", False, "Join the other processes; under SLURM and on TPU pods JAX finds them without more flags."
    )
    flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, if the environment does not name it.")
    flags.DEFINE_integer("processes", None, "Number of processes, if the environment does not state it.", lower_bound=1)
    flags.DEFINE_integer("process", None, "Index of this process, from 0.", lower_bound=0)
    define_cache_flag()


def define_cache_flag() -> None:
    """Defines the flag of a main that keeps compiled programs."""
    flags.DEFINE_string(
        "compilation_cache",
        None,
        "Folder in which compiled programs are kept between runs; `off` keeps none. The default is "
        "JAX_COMPILATION_CACHE_DIR, or a folder for this kind of machine in the user's cache.",
    )


def keep_programs(requested: str | None, *, all_of_them: bool = False) -> None:
    """Keeps compiled programs between runs, and warns if others could change them.

    `requested` is a folder, `off`, or None for the folder that the program has chosen already, or else the default.
    With `all_of_them`, programs that compile in less than a second are kept too: of use where many are compiled.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    earlier_folder = jax.config.values["jax_compilation_cache_dir"]
    folder = cache_folder(requested or earlier_folder, dict(os.environ))
    jax.config.update("jax_compilation_cache_dir", folder)
    if folder != earlier_folder:
        compilation_cache.reset_cache()  # JAX asks for the folder once, when it first compiles
    if all_of_them:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if folder is not None and (exposure := writable_by_others(folder)):
        logging.warning(
            "%s: found %s, expected a folder that only you can write to: compiled programs are run as they are found "
            "there (--compilation_cache names another folder, `off` keeps none)",
            folder,
            exposure,
        )


def start() -> None:
    """Applies the flags of `define_flags`; must be called before any other use of JAX.

    Raises:
      ValueError: when only some of the flags that describe the processes are given.
      RuntimeError: when the other processes cannot be reached.
    """
    keep_programs(flags.FLAGS.compilation_cache)
    if not flags.FLAGS.distributed:
        return
    options = {name: flags.FLAGS[name].value for name in ("coordinator", "processes", "process")}
    missing = [name for name, value in options.items() if value is None]
    if len(missing) not in (0, len(options)):
        raise ValueError(f"{missing[0]}: found none, expected all of --{', --'.join(options)} or none of them")
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(options["coordinator"], options["processes"], options["process"])
    except ValueError as error:
        raise ValueError(
            f"distributed: found no cluster that JAX knows ({error}), expected SLURM's environment or --coordinator, "
            "--processes and --process"
        ) from error


def is_first() -> bool:
    """Whether this is the process that writes files and prints."""
    import jax

    return jax.process_index() == 0


def wait(name: str) -> None:
    """Waits until all processes have reached this call."""
    import jax
    from jax.experimental import multihost_utils

    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def cache_folder(requested: str | None, environment: dict[str, str]) -> str | None:
    """The folder in which compiled programs are kept, by default one for this machine; None for `off`."""
    if requested == "off":
        return None
    if requested or environment.get("JAX_COMPILATION_CACHE_DIR"):
        return requested or environment["JAX_COMPILATION_CACHE_DIR"]
    base = environment.get("XDG_CACHE_HOME") or str(pathlib.Path(environment.get("HOME", "~")).expanduser() / ".cache")
    # Machines that can run each other's programs share a name: unlike ones may share a home directory.
    machine = f"{platform.machine()}-{hashlib.sha256(processor_features().encode()).hexdigest()[:8]}"
    return str(pathlib.Path(base) / "prism_jax" / machine)


def writable_by_others(folder: str) -> str | None:
    """Says why others can change the files of a local folder, or replace it by another; None if they cannot.

    A folder that does not exist yet is judged by the folders above it.
    """
    if "://" in folder:
        return None
    path = pathlib.Path(folder).resolve()
    for place in (path, *path.parents):
        try:
            status = place.stat()
        except OSError:
            continue  # does not exist yet, or is hidden from this user too
        shared = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid())
        sticky = place != path and status.st_mode & stat.S_ISVTX  # only owners rename or delete what is in it
        if shared and not sticky:
            return f"{place} writable by others (mode {stat.S_IMODE(status.st_mode):o})"
        if place == path and status.st_uid not in (os.geteuid(), 0):
            return f"{place} owned by another user (id {status.st_uid})"
    return None


def processor_features() -> str:
    """The line of /proc/cpuinfo that names the features of the first processor; empty where there is none."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
