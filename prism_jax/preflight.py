"""Checks the machine before the first step: `python -m prism_jax.preflight --devices=8 --workdir=DIR`.

Prints one line on stderr for each problem; if there is any, the exit status is 1. It also accepts the flags of
`prism_jax.train`, so that a launch script can pass the same flags to both programs.
"""

from __future__ import annotations

import sys

import jax
from absl import flags

from prism_jax import train
from prism_jax.recipes.machine import check_devices, check_disk, check_driver
from prism_jax.runtime import command, distributed
from prism_jax.training.old_names import RENAMED


def define_flags() -> None:
    """Defines the flags that are added to those of `prism_jax.train`."""
    train.define_flags()
    flags.DEFINE_string("disk", "10GiB", "Space that the workdir's disk must have.")
    flags.DEFINE_string("platform", "gpu", "Platform that the devices must have: gpu, tpu or cpu.")


def main() -> None:
    """Runs every check."""
    options = flags.FLAGS
    problems = list(check_driver()) if options.platform == "gpu" else []
    distributed.start()
    problems += check_devices(options.devices or 1, options.platform, options.device_memory)
    problems += check_disk(options.workdir, options.disk)
    for problem in problems:
        sys.stderr.write(problem + "\n")
    if problems:
        raise RuntimeError(f"preflight: found {len(problems)} problems, expected none")
    print(f"preflight: {jax.device_count()} x {jax.devices()[0].device_kind}, all checks passed")


if __name__ == "__main__":
    define_flags()
    command.start(main, RENAMED)
