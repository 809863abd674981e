"""Trains a student, or resumes, calibrates and evaluates it, and writes a report.

    python -m prism_jax train --config=configs/quickstart.py --workdir=runs/quickstart

Started again on the same workdir, it resumes from the newest checkpoint that can be read. SIGTERM, or Ctrl-C once, ends
it after the current step, with a checkpoint and exit status 75 (EX_TEMPFAIL); the same command then resumes. With
--plan it only prints the memory that the config needs, and fails if a device has less; --plan --target=a100-80gb also
compiles the step for that GPU. With --check it only checks the machine: driver, devices, disk, a line per problem.
With --list_settings it prints what a config can say.
"""

from __future__ import annotations

import pathlib
import sys

from absl import flags
from ml_collections import config_flags

from prism_jax.runtime import command, distributed
from prism_jax.runtime.command import check_together, refuse_empty
from prism_jax.training.compiled.cards import CARDS


def define_flags() -> None:
    """Defines the flags."""
    distributed.define_flags()
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    flags.DEFINE_string("workdir", None, "Folder for everything that the run leaves behind.")
    refuse_empty("workdir")
    flags.DEFINE_bool("texts", True, "Whether report.html may show events' texts; --notexts leaves them out.")
    flags.DEFINE_bool("plan", False, "Print the bytes that a device needs, and fail if it has fewer.")
    flags.DEFINE_string(
        "device_memory", "", "Memory of a device, such as 80GiB; on CPU, --plan then plans for an NVIDIA GPU."
    )
    flags.DEFINE_string(
        "target",
        None,
        f"GPU that --plan compiles the step for: {', '.join(CARDS)}. It need not be there; launch/compiler.sh installs "
        "the compiler.",
    )
    flags.DEFINE_integer("devices", None, "Devices that the run must have, of all processes together.", lower_bound=1)
    flags.DEFINE_string("plan_out", None, "File to write what --plan --target finds to, as JSON.")
    flags.DEFINE_bool(
        "list_settings", False, "Print every setting with its value, by default or in --config, and its meaning."
    )
    flags.DEFINE_bool("check", False, "Check the machine instead of training; --config is not needed.")
    flags.DEFINE_string("disk", "10GiB", "With --check: space that the workdir's disk must have.")
    flags.DEFINE_string("platform", "gpu", "With --check: platform that the devices must have: gpu, tpu or cpu.")
    flags.DEFINE_integer("profile", None, "Step from which to write a trace of a few steps to WORKDIR/profile.")


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    check_together("plan with check: one of them", "target plan_out without plan: it")
    command.keep_freed_memory()
    # Neither help nor a refused flag needs a language model.
    from prism_jax.runtime.dataclass_config import from_config_dict, settings, to_config_dict
    from prism_jax.streams import sources
    from prism_jax.training.run_config import RunConfig

    if options.check:
        from prism_jax.runs.machine import check_machine

        return check_machine(
            options.platform, options.devices or 1, options.device_memory, workdir=options.workdir, disk=options.disk
        )
    if options.list_settings:
        config = to_config_dict(RunConfig())
        config.update(options.config or {})
        print("\n".join(settings(RunConfig, config)))
        return None
    config = from_config_dict(RunConfig, options.config)
    if not options.plan:
        sources.expect_sources(config.data)  # before all that trains is loaded
    from prism_jax.runs.machine import check_device_count, show_plan
    from prism_jax.runs.pipeline import train_and_evaluate
    from prism_jax.training.interruption import EXIT_STATUS, InterruptedTrainingError
    from prism_jax.training.workdir import Workdir

    distributed.start()
    check_device_count(config, options.devices)
    if options.plan:
        return show_plan(config, options.device_memory, options.target, options.plan_out)
    try:
        train_and_evaluate(config, Workdir(options.workdir), profile=options.profile, texts=options.texts)
    except InterruptedTrainingError as stopped:
        sys.stderr.write(f"stopped: {stopped}\n")
        sys.exit(EXIT_STATUS)


if __name__ == "__main__":
    define_flags()
    flags.register_multi_flags_validator(
        ["config", "check", "list_settings"],
        lambda values: values["check"] or values["list_settings"] or values["config"],
        "--config is required without --check or --list_settings",
    )
    flags.register_multi_flags_validator(
        ["workdir", "plan", "check", "list_settings"],
        lambda values: values["plan"] or values["check"] or values["list_settings"] or values["workdir"],
        "--workdir is required without --plan, --check or --list_settings",
    )
    command.start(main, defaults=str(pathlib.Path(__file__).parents[1] / "training" / "defaults.py"))
