"""The quickstart: a tiny Qwen3-shaped student from random weights on the built-in simulator."""

from prism_jax.config import to_config_dict
from prism_jax.training.config import RunConfig


def get_config():
    """The defaults are the quickstart."""
    return to_config_dict(RunConfig())
