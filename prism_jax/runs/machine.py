"""Checks a machine before a run, and plans the memory that a config needs, on devices that may not be present."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import jax
from etils import epath

from prism_jax.runtime import distributed
from prism_jax.runtime.dataclass_config import from_config_dict, to_dict
from prism_jax.runtime.files import check_folder_of, write_json
from prism_jax.student.sharding import pretend_devices
from prism_jax.training.compiled.cards import card
from prism_jax.training.job import step_shape
from prism_jax.training.memory import device_memory, gib, parse_bytes, plan_memory
from prism_jax.training.run_config import RunConfig

# Oldest driver of each extra that installs JAX for CUDA (docs.jax.dev/en/latest/installation.html).
_DRIVERS = {"cuda13": 580, "cuda12": 525}


def list_gpus() -> list[str]:
    """Index, driver version and MiB in use of every GPU, as nvidia-smi prints them; RuntimeError where it cannot."""
    query = ["nvidia-smi", "--query-gpu=index,driver_version,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(
            f"driver: nvidia-smi could not run ({error}), expected NVIDIA's driver; install it, or request a GPU node"
        ) from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        raise RuntimeError(
            f"driver: nvidia-smi found {lines[0]!r}, expected its list of GPUs; reinstall or reload the driver"
        )
    return done.stdout.splitlines()


def fitting_extra(lines: Sequence[str]) -> str:
    """The newest extra that the drivers in `list_gpus()` can run; the oldest where none can, or without a GPU."""
    oldest = min((_driver(line) for line in lines), default=0)
    return next((extra for extra, driver in _DRIVERS.items() if oldest >= driver), "cuda12")


def _driver(line: str) -> int:
    return int(line.split(",")[1].split(".")[0])


def check_gpus(lines: Sequence[str], installed: str) -> Iterator[str]:
    """Finds GPUs in use, and drivers that are too old for the installed extra, in the lines of `list_gpus()`."""
    for line in lines:
        index, driver, used = (field.strip() for field in line.split(","))
        if _driver(line) < _DRIVERS[installed]:
            other = fitting_extra([line])
            yield (
                f"driver: found {driver}, expected at least {_DRIVERS[installed]}, the oldest for CUDA "
                f"{installed.removeprefix('cuda')}; update it"
                + (f", or install 'prism_jax[{other}]'" if _driver(line) >= _DRIVERS[other] else "")
            )
        if int(used) > 1024:
            yield f"gpu {index}: found {int(used):,} MiB in use, expected a free GPU; end its processes (nvidia-smi)"


def check_devices(count: int, platform: str, memory: str, extra: str = "cuda12") -> Iterator[str]:
    """Checks that JAX sees the devices that a run needs; `extra` is the one that would install it for GPUs."""
    try:
        devices = jax.devices()
    except RuntimeError as error:
        yield f"jax: found no devices ({error}), expected {count} of {platform}"
        return
    if devices[0].platform != platform:
        yield (
            f"jax: found {devices[0].platform} devices, expected {platform}; install 'prism_jax[{extra}]' and unset "
            "JAX_PLATFORMS"
        )
    elif len(devices) != count:
        yield f"jax: found {len(devices)} devices, expected {count}; see CUDA_VISIBLE_DEVICES and the job's GPUs"
    elif memory and (available := device_memory(jax.local_devices()[0])) < parse_bytes(memory):
        yield f"jax: found {gib(available)} per device, expected {memory}; see XLA_PYTHON_CLIENT_MEM_FRACTION"


def check_disk(workdir: str | None, space: str) -> Iterator[str]:
    """Checks that the disk of a local workdir has enough free space."""
    if not workdir or "://" in workdir:
        return
    folder = epath.Path(workdir).absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < parse_bytes(space, "disk"):
        yield f"disk: found {gib(free)} free at {there}, expected {space}; free some, or choose another --workdir"


def check_machine(platform: str, devices: int, memory: str, *, workdir: str | None, disk: str) -> None:
    """Prints a line on stderr for each problem of this machine; RuntimeError if there is any.

    `memory` is what each device must have, such as "74GiB", and `disk` the free space on the disk of `workdir`; an
    empty memory accepts any, and no workdir checks no disk.
    """
    problems, gpus = [], []
    if platform == "gpu":
        try:
            gpus = list_gpus()
        except RuntimeError as error:
            problems.append(str(error))
    installed = next((extra for extra in _DRIVERS if importlib.util.find_spec(f"jax_{extra}_plugin")), "cuda12")
    problems += check_gpus(gpus, installed)
    distributed.start()
    problems += [*check_devices(devices, platform, memory, fitting_extra(gpus)), *check_disk(workdir, disk)]
    for problem in problems:
        sys.stderr.write(problem + "\n")
    if problems:
        raise RuntimeError(f"check: found {len(problems)} problems, expected none")
    print(f"check: {jax.device_count()} x {jax.devices()[0].device_kind}, all checks passed")


_SCRIPT = pathlib.Path(__file__).parents[2] / "launch" / "common.sh"
_COMPILE = "from prism_jax.runs.machine import answer; answer()"
_MISSING = 3  # exit status of a process without the compiler


def check_device_count(config: RunConfig, devices: int | None) -> None:
    """Raises ValueError if the mesh of a config has another number of devices; None accepts any."""
    mesh = config.mesh
    if devices is not None and devices != mesh.devices:
        raise ValueError(
            f"devices: found {devices}, expected the mesh's {mesh.devices} (data {mesh.data} x fsdp {mesh.fsdp} x "
            f"tensor {mesh.tensor}); set --config.mesh.data, .fsdp or .tensor"
        )


def show_plan(
    config: RunConfig,
    device_memory: str,
    target: str | None = None,
    out: str | None = None,
) -> None:
    """Prints the memory that one device needs; allocates nothing.

    The step is compiled for the GPU `target`; None plans for the devices that are present, or for any NVIDIA GPU if
    `device_memory` is given. Where that is empty, it is the memory of the target or of the devices that are present.
    What the compiler finds is written to `out` as JSON.

    Raises:
      ValueError: if a device has less memory, or for arguments that contradict each other.
    """
    if out is not None and target is None:
        raise ValueError(f"plan_out: found {out} without --target, expected the GPU to compile for")
    limit = parse_bytes(device_memory) if device_memory else 0
    if target is None:
        return _show_estimate(config, limit)
    if out is not None:
        check_folder_of(out)
    flags, fraction = launch_settings()
    limit = limit or int(card(target).memory * fraction)
    answer = compile_elsewhere(config, target, limit, flags)
    if answer is None:
        if out is not None:
            raise ValueError(
                f"plan_out: found no compiler for {target} in {compiler_folder()}, expected launch/compiler.sh to have "
                "run"
            )
        print(
            f"no compiler for NVIDIA GPUs is installed in {compiler_folder()} (launch/compiler.sh installs it): "
            "estimated from shapes alone"
        )
        return _show_estimate(config, limit)
    lines, plan, error = answer
    print(f"{'flags':18} {flags or 'none'}, memory fraction {fraction}, of {_SCRIPT.name}")
    for name, fact in lines:
        print(f"{name:18} {fact}")
    if out is not None:
        write_json(pathlib.Path(out), plan)
    if error:
        raise ValueError(error)


def _show_estimate(config: RunConfig, limit: int) -> None:
    pretend_devices(config.mesh.devices)
    shape, sizes = step_shape(config)
    plan = plan_memory(shape, limit)
    for name, fact in {"row sizes": f"from {sizes}", **plan.lines()}.items():
        print(f"{name:12} {fact}")
    plan.check()


def launch_settings() -> tuple[str, float]:
    """The XLA flags and the share of GPU memory that the launch scripts set.

    The flags of `launch/common.sh` follow those of the environment. Outside a checkout, there are only the flags of the
    environment and JAX's own share, 0.75.
    """
    if not _SCRIPT.exists():
        return os.environ.get("XLA_FLAGS", ""), float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75))
    show = 'source "$0" && printf "%s\\n%s" "$XLA_FLAGS" "$XLA_PYTHON_CLIENT_MEM_FRACTION"'
    output = subprocess.run(["bash", "-c", show, _SCRIPT], capture_output=True, text=True, check=True).stdout
    flags, fraction = output.strip().split("\n")
    return " ".join(flags.split()), float(fraction)


def compiler_folder() -> pathlib.Path:
    """The folder in which `launch/compiler.sh` installs XLA's compiler: PRISM_AOT, or one in this environment."""
    return pathlib.Path(os.environ.get("PRISM_AOT") or pathlib.Path(sys.prefix) / "aot")


def compiler_environment(flags: str) -> dict[str, str]:
    """The environment of a process that compiles with it, given flags for XLA."""
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(compiler_folder()), *sys.path])),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_FLAGS": flags,
    }


def compile_elsewhere(config: RunConfig, target: str, limit: int, flags: str) -> tuple[list, dict, str] | None:
    """Compiles the step of a config for a GPU in a process of its own, which frees its memory when it ends.

    The limit is the bytes that a process may use of the GPU's memory.

    Returns:
      Lines for the terminal, the plan as JSON, and an error if it does not fit (else empty); None without a compiler.

    Raises:
      ValueError: if the config cannot be used.
      RuntimeError: if the compiler fails.
    """
    question = json.dumps({"config": to_dict(config), "target": target, "limit": limit, "parent": os.getpid()})
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE],
        env=compiler_environment(flags),
        input=question,
        capture_output=True,
        text=True,
    )
    if done.returncode == _MISSING:
        return None
    if done.returncode:
        last = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["no message"]
        raise RuntimeError(f"plan: the compiler for {target} failed: {last[-1]}")
    reply = json.loads(done.stdout.splitlines()[-1])
    if "refused" in reply:
        raise ValueError(reply["refused"])
    return reply["lines"], reply["plan"], reply["error"]


def answer() -> None:
    """Answers a question of `compile_elsewhere`, in the process that it starts."""
    from prism_jax.training.compiled.absent import has_compiler
    from prism_jax.training.compiled.plan import compile_plan

    if not has_compiler():
        sys.exit(_MISSING)
    question = json.load(sys.stdin)
    threading.Thread(target=_end_with, args=(question["parent"],), daemon=True).start()
    try:
        config = from_config_dict(RunConfig, question["config"])
        plan = compile_plan(config, question["target"], question["limit"])
    except (ValueError, OSError) as error:
        print(json.dumps({"refused": str(error)}))
        return
    try:
        plan.check()
        error_line = ""
    except ValueError as error:
        error_line = str(error)
    print(json.dumps({"lines": plan.lines(), "plan": plan.to_dict(), "error": error_line}))


def _end_with(parent: int) -> None:
    """Ends this process within a second after its parent, which may have been killed and waits for no answer then."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
