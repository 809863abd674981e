r"""The paper's recipe: Qwen3-8B, all parameters, on one 80 GB A100.

    python -m prism_jax.train --config=configs/qwen3_8b_a100.py --plan --target=a100-80gb
    launch/a100.sh --config=configs/qwen3_8b_a100.py --config.training.start=DIR --config.data.source=FILE \
        --workdir=runs/qwen3_8b

DIR is the model's directory as published on Hugging Face (Qwen/Qwen3-8B: config.json, tokenizer.json, *.safetensors),
16 GB. FILE is a JSONL file of teacher-labelled streams with responses, which docs/training.md ("Your own streams") says
how to make; it is not part of the project. Its training streams must hold at least 1,800 judged decisions.

As in the paper: curated fine-tuning (`rdc_sft`) on the 1,800 decisions of highest R_DC, 3 epochs of 4 rows per update
with one decision per row (1,350 updates), AdamW with a peak learning rate of 1e-5, warm-up over a tenth of the steps
(135), a cosine schedule, a context of 4096 tokens, bfloat16, the model's own chat template, and no loss on the prompt.
The departures serve to fit the GPU, to fill in what the paper does not state, or to correct it (docs/maths.md):

- Four rows in one step, instead of 4 steps of 1 row. The gradient is the same, and no buffer for the sum of four
  gradients is needed (16 GB in bfloat16; 33 GB in float32, which such a sum requires). The backward pass recomputes
  every block; on this GPU, `remat = auto` keeps the feed-forward gates in 13.5 GiB of the host's memory meanwhile.
  `--config.student.remat=full` keeps nothing and needs no memory of the host.
- The 1,800 decisions are the best within each pair of labels instead of overall, so that curation does not change how
  often help is needed.
- Parameters are the upper halves of float32 master weights, whose lower halves the optimizer keeps. Most bfloat16
  weights would not change at all under an update of 1e-5.
- Adam's first moment in bfloat16, and its second as row and column means (as in Adafactor): 16 GB and 0 GB instead
  of 66.
- Decoupled weight decay 0.01, global norm clipped to 1, b2 0.999: the paper states none of these.

`--config.packing.max_decisions=0` reads each stream once with all its decisions, which takes fewer tokens and makes
fewer updates; the start-up report gives both numbers.

Time: not yet run on an A100. As compiled for one, at least 1.2 hours for the 1,350 updates; the paper states 2.5 for
its own run. On an H200, a step takes 1.5 s (`student.remat=qkv`, docs/training.md).
Result: not yet known. Compiled for an A100, it needs 66.6 GiB of the 75.3 that the launch scripts allow
(docs/training.md).
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
