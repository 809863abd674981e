"""Checks a machine before a run: driver, devices, disk. Each check yields one line per problem."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence

import jax
from etils import epath

from prism_jax.training.memory.plan import gib, parse_bytes
from prism_jax.training.memory.shapes import device_memory


def check_driver() -> Iterator[str]:
    """Checks that NVIDIA's driver responds and that other processes use no GPU memory."""
    query = ["nvidia-smi", "--query-gpu=index,driver_version,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"driver: nvidia-smi could not run ({error}), expected NVIDIA's driver; install it, or request a GPU node"
        return
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        yield f"driver: nvidia-smi found {lines[0]!r}, expected its list of GPUs; reinstall or reload the driver"
        return
    yield from used_memory(done.stdout.splitlines())


def used_memory(lines: Sequence[str]) -> Iterator[str]:
    """Finds old drivers and GPUs in use, from the index, driver version and MiB that nvidia-smi prints."""
    for line in lines:
        index, driver, used = (field.strip() for field in line.split(","))
        if int(driver.split(".")[0]) < 525:
            yield f"driver: found {driver}, expected at least 525, the oldest for CUDA 12; update it"
        if int(used) > 1024:
            yield f"gpu {index}: found {int(used):,} MiB in use, expected a free GPU; end its processes (nvidia-smi)"


def check_devices(count: int, platform: str, memory: str) -> Iterator[str]:
    """Checks that JAX sees the devices that a run needs."""
    try:
        devices = jax.devices()
    except RuntimeError as error:
        yield f"jax: found no devices ({error}), expected {count} of {platform}"
        return
    if devices[0].platform != platform:
        yield (
            f"jax: found {devices[0].platform} devices, expected {platform}; install 'prism_jax[cuda12]' and unset "
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
    if free < parse_bytes(space):
        yield f"disk: found {gib(free)} free at {there}, expected {space}; free some, or choose another --workdir"
