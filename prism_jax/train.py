"""Trains, calibrates and evaluates a run: `python -m prism_jax.train --config=configs/quickstart.py --workdir=DIR`.

Started again on the same workdir, it goes on from the newest checkpoint that can be read. SIGTERM, or Ctrl-C once, ends
it after the step under way with a checkpoint and exit status 75 (EX_TEMPFAIL): the same command goes on. With --plan it
trains nothing, but says what memory the config needs, and fails where that is more than a device has.
"""

from __future__ import annotations

import sys

import jax
from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax import command, distributed
from prism_jax.config import from_config_dict
from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.provenance import provenance
from prism_jax.student.sharding import pretend_devices
from prism_jax.trained import evaluate_run
from prism_jax.training.config import RunConfig
from prism_jax.training.interruption import EXIT_STATUS, InterruptedTrainingError
from prism_jax.training.loop import describe, plan, train
from prism_jax.training.memory.allocator import keep_freed_memory
from prism_jax.training.memory.plan import parse_bytes, plan_memory, step_shape
from prism_jax.training.run import open_run, resolve
from prism_jax.training.startup import startup
from prism_jax.training.workdir import claim, write_json

CONFIG = config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides.")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder for everything that the run leaves behind.")
PLAN = flags.DEFINE_bool("plan", False, "Print the bytes that a device needs, and fail if it has fewer.")
DEVICE_MEMORY = flags.DEFINE_string(
    "device_memory", "", "With --plan: a device's memory, such as 80GiB; on CPU the plan is then for an NVIDIA GPU."
)
PROFILE = flags.DEFINE_integer("profile", None, "Step from which a trace of a few steps goes to WORKDIR/profile.")


def run(config: RunConfig, workdir: epath.Path, *, progress: bool = True, profile: int | None = None) -> None:
    """Trains (or goes on training) a run, then calibrates and evaluates it; of several processes the first writes."""
    saved = workdir / "tokenizer.json"
    opened = open_run(resolve(config), Tokenizer.load(saved) if saved.exists() else None)
    job = plan(opened, workdir)
    facts = {**opened.facts(), **describe(job), **startup(job)}
    if distributed.is_first():
        claim(workdir, opened.config)  # from here on files are written
        opened.template.tokenizer.save(saved)
        write_json(workdir / "run.json", provenance())
        for name, fact in facts.items():
            print(f"{name:12} {fact}")
    distributed.wait("claimed")
    train(job, progress=progress, profile=profile)
    if jax.process_count() == 1:
        evaluate_run(opened, workdir)
    elif distributed.is_first():
        print(f"trained; `python -m prism_jax.evaluate --workdir={workdir}` calibrates and evaluates, in one process")


def show_plan(config: RunConfig, device_memory: str) -> None:
    """Prints what memory a device needs, and raises where it has less; allocates and writes nothing."""
    limit = parse_bytes(device_memory) if device_memory else 0
    pretend_devices(config.training.data * config.training.fsdp * config.training.tensor)
    shape, sizes = step_shape(config)
    found = plan_memory(shape, limit)
    for name, fact in {"row sizes": f"from {sizes}", **found.lines()}.items():
        print(f"{name:12} {fact}")
    found.check()


def main() -> None:
    """Runs what the flags say."""
    keep_freed_memory()
    distributed.start()
    if PLAN.value:
        return show_plan(from_config_dict(RunConfig, CONFIG.value), DEVICE_MEMORY.value)
    try:
        run(from_config_dict(RunConfig, CONFIG.value), epath.Path(WORKDIR.value), profile=PROFILE.value)
    except InterruptedTrainingError as stopped:
        sys.stderr.write(f"stopped: {stopped}\n")
        sys.exit(EXIT_STATUS)


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    flags.register_multi_flags_validator(
        ["workdir", "plan"], lambda given: given["plan"] or given["workdir"], "--workdir is required without --plan"
    )
    command.start(main)
