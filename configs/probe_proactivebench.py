"""A probe on ProactiveBench's human judgements, tested on whole streams that it was not fitted on.

    python -m prism_jax probe --config=configs/probe_proactivebench.py --workdir=runs/probe_proactivebench

`--config.states.weights=PATH` adds the states of a frozen model; the settings are those of SmolLM2-135M-Instruct
(docs/probe.md says where it is).

`--config.data.source=DIR` names a folder with the layout of the official repository (thunlp/ProactiveAgent). By default
../shared/proactivebench is read where that folder exists; elsewhere, the official archive is downloaded.
`--config.data.folds=4 --config.data.fold=0` choose the test fold, and `--config.data.need=strict`, `majority` or
`any_valid` the definition of need.

Time: about fifteen seconds on two CPU cores for words; with states, about eight seconds more for each stream.
Result: on fold 0, four test streams, the Brier score of raw p_accept is 0.191, where a constant's is 0.219, and the
raw dynamic gate costs 0.520 per step, as always offering does, and never offering 0.857. Temperatures fitted on two
calibration streams make both worse. docs/probe.md has the results over all streams.
"""

from prism_jax.probe.probe_config import ProbeConfig
from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import DataConfig, local_proactivebench


def get_config():
    """Has the settings that were fixed before any result was known: ridge 100, blocks 12 and 18 of 30."""
    return to_config_dict(
        ProbeConfig(data=DataConfig(name="proactivebench", source=local_proactivebench(), folds=4, fold=0))
    )
