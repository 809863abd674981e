"""Checks the machine before the first step: `python -m prism_jax.preflight --devices=8 --workdir=DIR`.

Every problem is one line on stderr, and any problem exit status 1. Flags of `prism_jax.train` are taken too, so that a
launch script passes both the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

import jax
from absl import flags
from etils import epath

from prism_jax import command, distributed, train
from prism_jax.training.memory.plan import device_memory, gib, parse_bytes

DEVICES = flags.DEFINE_integer("devices", 1, "Devices that JAX must see, of all processes together.", lower_bound=1)
DISK = flags.DEFINE_string("disk", "10GiB", "Space that the workdir's disk must have.")
PLATFORM = flags.DEFINE_string("platform", "gpu", "What the devices must be: gpu, tpu or cpu.")


def check_driver() -> Iterator[str]:
    """Whether NVIDIA's driver answers, and whether others hold memory of the cards."""
    query = ["nvidia-smi", "--query-gpu=index,driver_version,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"driver: nvidia-smi could not run ({error}), expected NVIDIA's driver; install it, or ask for a GPU node"
        return
    if done.returncode:
        found = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        yield f"driver: nvidia-smi found {found[0]!r}, expected its list of GPUs; reinstall or reload the driver"
        return
    yield from used_memory(done.stdout.splitlines())


def used_memory(lines: Sequence[str]) -> Iterator[str]:
    """GPUs whose memory is taken, from nvidia-smi's index, driver and MiB."""
    for line in lines:
        index, driver, used = (field.strip() for field in line.split(","))
        if int(driver.split(".")[0]) < 525:
            yield f"driver: found {driver}, expected at least 525, the oldest for CUDA 12; update it"
        if int(used) > 1024:
            yield f"gpu {index}: found {int(used):,} MiB in use, expected it free; end what runs there (nvidia-smi)"


def check_devices(count: int, platform: str, memory: str) -> Iterator[str]:
    """Whether JAX sees the devices that a run needs."""
    try:
        found = jax.devices()
    except RuntimeError as error:
        yield f"jax: found no devices ({error}), expected {count} of {platform}"
        return
    if found[0].platform != platform:
        yield (
            f"jax: found {found[0].platform} devices, expected {platform}; install 'prism_jax[cuda12]' and unset "
            "JAX_PLATFORMS"
        )
    elif len(found) != count:
        yield f"jax: found {len(found)} devices, expected {count}; see CUDA_VISIBLE_DEVICES and the job's GPUs"
    elif memory and (given := device_memory(jax.local_devices()[0])) < parse_bytes(memory):
        yield f"jax: found {gib(given)} a device, expected {memory}; see XLA_PYTHON_CLIENT_MEM_FRACTION"


def check_disk(workdir: str | None, space: str) -> Iterator[str]:
    """Whether a local workdir's disk has room."""
    if not workdir or "://" in workdir:
        return
    folder = epath.Path(workdir).absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < parse_bytes(space):
        yield f"disk: found {gib(free)} free at {there}, expected {space}; free some, or choose another --workdir"


def main() -> None:
    """Runs every check."""
    problems = list(check_driver()) if PLATFORM.value == "gpu" else []
    distributed.start()
    problems += check_devices(DEVICES.value, PLATFORM.value, train.DEVICE_MEMORY.value)
    problems += check_disk(train.WORKDIR.value, DISK.value)
    for problem in problems:
        sys.stderr.write(problem + "\n")
    if problems:
        raise RuntimeError(f"preflight: found {len(problems)} problems, expected none")
    print(f"preflight: {jax.device_count()} x {jax.devices()[0].device_kind}, nothing amiss")


if __name__ == "__main__":
    command.start(main)
