"""The same tiny student on ProactiveBench's human judgements, whole streams held out.

    python -m prism_jax.train --config=configs/proactivebench_tiny.py --workdir=runs/proactivebench_tiny

`--config.data.source=DIR` names a folder laid out as the official repository (thunlp/ProactiveAgent); `--config.data.fold=K`
with `--config.data.folds=4` chooses the held-out fold; `--config.data.need=strict|majority|any_valid` the definition of need.
"""

from prism_jax.config import to_config_dict
from prism_jax.training.config import DataConfig, LossConfig, RunConfig, TrainingConfig


def get_config():
    """Real streams are few and long: small batches, no responses to train on."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(name="proactivebench", source="../shared/proactivebench", folds=4, fold=0, context=2048),
            loss=LossConfig(response=0.0),
            training=TrainingConfig(steps=60, batch=2, learning_rate=1e-3, checkpoint_every=30),
        )
    )
