"""A tiny student that a simulated teacher and simulated judges taught (`make distill-demo`, docs/distillation.md).

    python -m prism_jax train --config=configs/distilled.py --workdir=runs/distill_demo/student

Needs: the files of the three splits in runs/distill_demo, which the demo writes before it trains.
Time: two minutes on two CPU cores.
Result: 0.118 realised cost per step on held-out streams where it is slow on margin, 0.130 fast only; its teacher
reaches 0.092, and always offering 0.376 (docs/distillation.md).
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.training.students import DISTILLED


def get_config():
    """The recipe, which the study of distillation shares."""
    return to_config_dict(DISTILLED)
