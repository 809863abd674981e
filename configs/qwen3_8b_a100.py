r"""The paper's recipe: Qwen3-8B, all parameters, on one 80 GB A100.

    python -m prism_jax train --config=configs/qwen3_8b_a100.py --plan --target=a100-80gb
    launch/a100.sh --config=configs/qwen3_8b_a100.py --config.training.start=DIR --config.data.source=FILE \
        --workdir=runs/qwen3_8b

DIR is the model's directory as published on Hugging Face (Qwen/Qwen3-8B: config.json, tokenizer.json, *.safetensors),
16 GB. FILE is a JSONL file of teacher-labelled streams with responses, which docs/training.md ("Your own streams") says
how to make; it is not part of the project. Its training streams must hold at least 1,800 judged decisions.

The recipe, and where it departs from the paper's in all configs of Qwen3, stand in prism_jax/training/paper.py. This
config's own departures serve to fit the GPU:

- `training.batch` 4 with `training.accumulation` 1: four rows in one step, instead of 4 steps of 1 row. The gradient is
  the same, and no buffer for the sum of four gradients is needed (16 GB in bfloat16; 33 GB in float32, which such a sum
  requires). The backward pass recomputes every block. `--config.student.remat=offload` keeps the feed-forward gates in
  13.5 GiB of the host's memory meanwhile, which took longer on an H200.
- `training.master` split, instead of `pure_bf16`: parameters are the upper halves of float32 master weights, whose
  lower halves the optimizer keeps. Most bfloat16 weights would not change at all under an update of 1e-5.
- `training.first_moment` bfloat16, as in pure bf16, and `training.second_moment` factored: row and column means (as in
  Adafactor). 16 GB and 0 GB instead of 66 in float32.

`--config.packing.max_decisions=0` reads each stream once with all its decisions, which takes fewer tokens and makes
fewer updates; the start-up report gives both numbers.

Time: not yet run on an A100. As compiled for one, at least 1.3 hours for the 1,350 updates; the paper states 2.5 for
its own run. On an H200, a step takes 1.5 s (`student.remat=qkv`, docs/training.md).
Result: not yet known. Compiled for an A100, it needs 66.7 GiB of the 75.3 that the launch scripts allow, with slow
branches as without (docs/training.md).
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.student.presets import qwen3_8b
from prism_jax.training.paper import paper_run


def get_config():
    """The paper's settings, and what is needed to fit 80 GB."""
    return to_config_dict(
        paper_run(
            qwen3_8b(dtype="bfloat16", param_dtype="bfloat16", remat="auto"),
            start="weights/Qwen3-8B",
            batch=4,
            first_moment="bfloat16",
            second_moment="factored",
            master="split",
            checkpoint_every=200,
        )
    )
