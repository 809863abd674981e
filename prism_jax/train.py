"""Trains, calibrates and evaluates a run: `python -m prism_jax.train --config=configs/quickstart.py --workdir=DIR`.

Started again on the same workdir, it goes on from the newest checkpoint.
"""

from __future__ import annotations

from absl import flags
from etils import epath
from ml_collections import config_flags

from prism_jax import command
from prism_jax.config import from_config_dict
from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.provenance import provenance
from prism_jax.trained import evaluate_run
from prism_jax.training.config import RunConfig
from prism_jax.training.loop import describe, plan, train
from prism_jax.training.run import open_run, resolve
from prism_jax.training.workdir import claim, write_json

CONFIG = config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides.")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder for everything that the run leaves behind.")


def run(config: RunConfig, workdir: epath.Path, *, progress: bool = True) -> None:
    """Trains (or goes on training) a run, then calibrates and evaluates it."""
    saved = workdir / "tokenizer.json"
    opened = open_run(resolve(config), Tokenizer.load(saved) if saved.exists() else None)
    job = plan(opened, workdir)
    claim(workdir, opened.config)  # from here on files are written
    opened.template.tokenizer.save(saved)
    write_json(workdir / "run.json", provenance())
    for name, fact in {**opened.facts(), **describe(job)}.items():
        print(f"{name:12} {fact}")
    train(job, progress=progress)
    evaluate_run(opened, workdir)


def main() -> None:
    """Runs what the flags say."""
    run(from_config_dict(RunConfig, CONFIG.value), epath.Path(WORKDIR.value))


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    command.start(main)
