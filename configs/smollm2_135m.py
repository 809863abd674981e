"""SmolLM2-135M on the built-in simulator: a pretrained student that any machine can train, without external data.

    python -m prism_jax train --config=configs/smollm2_135m.py --plan
    python -m prism_jax train --config=configs/smollm2_135m.py --config.training.start=PATH --workdir=runs/smollm2_135m

PATH is the model's directory as published on Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct), or a GGUF file of it.

Time: not measured as a whole; `configs/smollm2_proactivebench.py` gives times for this model on two CPU cores.
Result: not measured; the config is a starting point for your own data (`--config.data.name=jsonl`).
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import DataConfig
from prism_jax.student.presets import smollm2_135m
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig


def get_config():
    """Trains all parameters in float32, the fastest dtype on two CPU cores, for one epoch over 512 short streams."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(train_streams=512, calibration_streams=128, test_streams=128),
            student=smollm2_135m(remat="full"),
            loss=LossConfig(response=0.2),
            training=TrainingConfig(
                start="weights/SmolLM2-135M-Instruct",
                steps=0,
                epochs=1.0,
                batch=8,
                learning_rate=5e-5,
                weight_decay=0.01,
                b2=0.999,
            ),
        )
    )
