"""The paper's tables on shrunken trainings, made in a separate process that a test may kill."""

import jax
import separate
from etils import epath
from tiny_trainings import RECIPES

from prism_jax.experiments.paper.runner import Inputs, run_experiments
from prism_jax.experiments.paper.study import IntervalSettings
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.runs.store import Store


def start(folder, names, cache, seeds=1):
    """Starts `python -m prism_jax experiments` on shrunken recipes.

    Args:
      folder: The workdir.
      names: Names of experiments.
      cache: Folder of compiled programs.
      seeds: Number of seeds.
    """
    return separate.start(_make, str(folder), names, str(cache), seeds)


def _make(folder, names, cache, seeds):
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    store = Store(epath.Path(folder) / "trainings")
    trainings = tuple(Trainings(store, seed, RECIPES) for seed in range(seeds))
    with store.claimed():
        run_experiments(
            names, Inputs(trainings=trainings, settings=IntervalSettings(resamples=20, seeds=seeds)), epath.Path(folder)
        )
