"""A probe on words, on the built-in simulator: acceptance and need without a language model.

    python -m prism_jax probe --config=configs/probe_simulator.py --workdir=runs/probe_simulator

Time: ten to thirty seconds on two CPU cores.
Result: little, because the simulator's offers have no text of their own, and cosines to them say nothing. The
calibrated dynamic gate closes 2 % of the expected-cost gap between the better constant policy and the Bayes oracle,
where the tiny student of configs/quickstart.py closes over 80 %. It shows that the whole pipeline runs.
"""

from prism_jax.probe.probe_config import ProbeConfig
from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import DataConfig


def get_config():
    """Uses a few hundred training streams: more do not help regressions on some ninety columns."""
    return to_config_dict(ProbeConfig(data=DataConfig(train_streams=300, calibration_streams=200, test_streams=300)))
