r"""Qwen3-0.6B, all parameters, for one GPU of 24 GB: the paper's recipe at a size for common GPUs.

    python -m prism_jax train --config=configs/qwen3_0_6b.py --plan --target=a100-40gb --device_memory=22GiB
    python -m prism_jax train --config=configs/qwen3_0_6b.py --config.training.start=DIR --config.data.source=FILE \
        --workdir=runs/qwen3_0_6b

DIR is the model's directory as published on Hugging Face (Qwen/Qwen3-0.6B), 1.5 GB. FILE is that of
`configs/qwen3_8b_a100.py`. The recipe, and where it departs from the paper's in all configs of Qwen3, stand in
prism_jax/training/paper.py. This config's own departures:

- The model has 0.6B parameters, not 8B, and ties its embeddings.
- `training.batch` 4 with `training.accumulation` 1: four rows in one step, the same gradient; 1,350 updates.
- `training.master`, `training.first_moment` and `training.second_moment` float32, instead of `pure_bf16`: the memory
  suffices.

Time: not yet run on such a GPU.
Result: not yet known. Compiled for an A100 of which it may use 22 GiB, it needs 20.3 GiB and recomputes no matrix
product; with `--config.student.remat=full`, 10.5 GiB. XLA has no description of a GPU of 24 GB to compile for.
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.student.presets import qwen3_0_6b
from prism_jax.training.paper import paper_run


def get_config():
    """The model is small enough for full moments and float32 master weights."""
    student = qwen3_0_6b(dtype="bfloat16", param_dtype="bfloat16", remat="auto")
    return to_config_dict(paper_run(student, start="weights/Qwen3-0.6B", batch=4, master="float32"))
