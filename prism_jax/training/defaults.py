"""The config file with the default of every setting, which `train --list_settings` changes and prints."""

from ml_collections import ConfigDict

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.training.run_config import RunConfig


def get_config() -> ConfigDict:
    """The defaults."""
    return to_config_dict(RunConfig())
