"""A tiny student on ProactiveBench's human judgements, tested on whole streams that training does not see.

    python -m prism_jax train --config=configs/proactivebench_tiny.py --workdir=runs/proactivebench_tiny

`--config.data.source=DIR` names a folder with the layout of the official repository (thunlp/ProactiveAgent). By default
../shared/proactivebench is read where that folder exists; elsewhere, the official archive is downloaded.
`--config.data.folds=4 --config.data.fold=0` choose the test fold, and `--config.data.need=strict`, `majority` or
`any_valid` the definition of need.

Time: about two minutes on two CPU cores.
Result: it shows that the whole pipeline runs on real data, and no more. From random weights, a student learns next to
nothing from a few hundred judgements, and its calibrated gate stays close to the better constant policy.
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import DataConfig, local_proactivebench
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig


def get_config():
    """Uses small batches, because real streams are few and long, and trains on no responses."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(name="proactivebench", source=local_proactivebench(), folds=4, fold=0),
            loss=LossConfig(response=0.0),
            training=TrainingConfig(steps=30, batch=2, learning_rate=1e-3, checkpoint_every=30),
        )
    )
