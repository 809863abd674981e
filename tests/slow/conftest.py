"""Fixtures that slow tests share across workers."""

import json

import numpy as np
import pytest
from filelock import FileLock


@pytest.fixture(scope="session")
def propensity_gains(shared_folder):
    """The paired gains of the propensity study by hidden effect, computed by the first worker that needs them."""
    from prism_jax.experiments.propensities import CONFIG, SEEDS, paired_gain

    def gains(effect):
        kept = shared_folder / f"propensities_{effect}.json"
        with FileLock(f"{kept}.lock"):
            if not kept.exists():
                kept.write_text(json.dumps(paired_gain(CONFIG, effect, SEEDS).tolist()))
            return np.array(json.loads(kept.read_text()))

    return gains
