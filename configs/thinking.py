"""A tiny student that gains by thinking: the simulator's switches (docs/training.md), with slow branches.

    python -m prism_jax train --config=configs/thinking.py --workdir=runs/thinking

Time: four to six minutes on two CPU cores.
Result: on test streams the fast pass closes about 40 % of the expected-cost gap between the better constant policy and
the Bayes oracle at C_FN / C_FA = 2. With the fields of the slow pass before the slots, true or written by the student,
it closes more than 95 %. Part of the difference is the short training: with another 560 updates the fast pass closes
68 %. With three settings it is not (docs/thinking.md).
"""

from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.training.students import THINKING


def get_config():
    """The recipe, which the study of thinking shares."""
    return to_config_dict(THINKING)
