r"""Qwen3-8B, all parameters, on one node of 8 A100s: parameters and optimizer state are sharded over the GPUs (FSDP).

    python -m prism_jax train --config=configs/qwen3_8b_a100x8.py --plan --target=a100-80gb
    launch/node.sh --config=configs/qwen3_8b_a100x8.py --config.training.start=DIR --config.data.source=FILE \
        --workdir=runs/qwen3_8b_x8

DIR and FILE are those of `configs/qwen3_8b_a100.py`. The recipe, and where it departs from the paper's in all configs
of Qwen3, stand in prism_jax/training/paper.py. This config's own departures:

- `training.batch` 8 with `training.accumulation` 1, instead of 4 rows one at a time: the fewest that 8 GPUs can share,
  which makes 675 updates. For several nodes, set mesh.data to their number and training.batch to 8 times that number
  (`launch/slurm.sh`).
- `training.master`, `training.first_moment` and `training.second_moment` float32, instead of `pure_bf16`: the memory
  suffices.

Nothing but elementwise operations is recomputed in the backward pass: `remat = auto` keeps all products and results of
attention on these GPUs.

Time: not yet run on A100s. As compiled for them, at least 8.3 minutes for the 675 updates.
Result: not yet known. Compiled for 8 A100s, it needs 27.6 GiB per GPU (docs/training.md).
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.student.presets import qwen3_8b
from prism_jax.training.paper import paper_run
from prism_jax.training.run_config import MeshConfig


def get_config():
    """The paper's recipe with a batch that 8 GPUs share."""
    student = qwen3_8b(dtype="bfloat16", param_dtype="bfloat16", remat="auto")
    return to_config_dict(
        paper_run(student, mesh=MeshConfig(fsdp=8), start="weights/Qwen3-8B", batch=8, master="float32")
    )
