r"""Low-rank adapters of Qwen3 by the paper's recipe, where memory is small: 8B on one GPU of 24 GB.

    python -m prism_jax train --config=configs/qwen3_lora.py:8b --plan --target=a100-40gb --device_memory=22GiB
    python -m prism_jax train --config=configs/qwen3_lora.py:8b --config.training.start=DIR \
        --config.data.source=FILE --workdir=runs/qwen3_lora

The word after the colon is the size: 8b (if none is given), 4b, 1.7b or 0.6b. DIR is the model's directory as published
on Hugging Face. FILE is that of `configs/qwen3_8b_a100.py`. The recipe, and where it departs from the paper's in all
configs of Qwen3, stand in prism_jax/training/paper.py; the batch is the paper's, 4 microbatches of 1 row. This config's
own departures:

- `lora.rank` 16: adapters on every matrix of a block train, instead of all parameters, which stay in bfloat16.
- `training.learning_rate` 1e-4, ten times the paper's.
- `training.first_moment` and `training.second_moment` float32, as the adapters are, instead of `pure_bf16`; without
  master weights, as in the paper.

Time: not yet run on such a GPU; a step takes 1.18 s and 28.9 GiB on an H200 (docs/training.md).
Result: not yet known. docs/training.md ("Adapters") has what each size needs, as compiled for an A100 of which it may
use a part; XLA has no description of a GPU of 24 GB, or of 16, to compile for.
"""

import dataclasses

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.student import presets
from prism_jax.student.lora import LoraConfig
from prism_jax.training.paper import paper_run

SIZES = {"8b": "8B", "4b": "4B", "1.7b": "1.7B", "0.6b": "0.6B"}


def get_config(size: str = "8b"):
    """The paper's settings with adapters."""
    if size not in SIZES:
        raise ValueError(f"size: found {size!r}, expected one of {', '.join(SIZES)}")
    preset = getattr(presets, f"qwen3_{size.replace('.', '_')}")
    student = preset(dtype="bfloat16", param_dtype="bfloat16", remat="auto")
    run = paper_run(student, start=f"weights/Qwen3-{SIZES[size]}", batch=4, accumulation=4)
    training = dataclasses.replace(run.training, learning_rate=10 * run.training.learning_rate)
    return to_config_dict(dataclasses.replace(run, training=training, lora=LoraConfig(rank=16, alpha=32.0)))
