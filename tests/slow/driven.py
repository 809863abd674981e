"""A tiny run in a separate process, for tests that kill it."""

import asyncio
import dataclasses
import os
import pathlib
import sys
import time

import jax
import orbax.checkpoint as ocp
import separate

from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig
from prism_jax.training.job import plan
from prism_jax.training.loop import train
from prism_jax.training.run import resolve
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.workdir import Workdir

CONFIG = RunConfig(
    data=DataConfig(train_streams=16, calibration_streams=4, test_streams=4),
    simulator=SimulatorConfig(min_events=4, max_events=5),
    prompt=PromptConfig(system="Watch.", vocab_size=400),
    student=StudentConfig(
        vocab_size=400, hidden_dim=32, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=32
    ),
    training=TrainingConfig(steps=160, batch=8, checkpoint_every=4, learning_rate=3e-3),
)


def with_training(**changes):
    return dataclasses.replace(CONFIG, training=dataclasses.replace(CONFIG.training, **changes))


def start(workdir, config, cache, *, seen=None, pause=0.0, saving=0.0):
    """Starts training in another process.

    Args:
      workdir: Folder of the run; created if it does not exist.
      config: Config of the run.
      cache: Folder of compiled programs.
      seen: File to which each completed step adds a line, and the error that ends the run, if any, another.
      pause: Seconds to wait after each step.
      saving: Seconds that are added to each save after it has begun to write.
    """
    return separate.start(_run, str(workdir), config, str(cache), str(seen or os.devnull), pause, saving)


def _run(workdir, config, cache, seen, pause, saving):
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    write = ocp.JsonCheckpointHandler._save_fn

    async def write_slowly(self, *arguments):
        await write(self, *arguments)
        await asyncio.sleep(saving)

    ocp.JsonCheckpointHandler._save_fn = write_slowly
    pathlib.Path(workdir).mkdir(exist_ok=True)
    with pathlib.Path(seen).open("a", buffering=1) as lines:

        def after(step):
            lines.write(f"{step}\n")
            time.sleep(pause)

        try:
            train(plan(resolve(config, Workdir(workdir))), progress=False, after_step=after)
        except (RuntimeError, OSError) as error:
            lines.write(f"{error}\n")
            sys.exit(1)
