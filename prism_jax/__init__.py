"""The calibrated decision layer for proactive agents, in JAX/Flax.

    from prism_jax import Gate

The language model (`streams`, `prompting`, `student`, `scoring`, `training`) writes the scores table. The packages that
read it (`decision`, `evaluation`, `report`) work on the scores of any agent and load no Flax. Runs, commands,
experiments and the agent combine the two halves. `python -m prism_jax` lists the commands.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prism_jax.decision.verdict import Verdict
    from prism_jax.gate import Gate

__all__ = ["Gate", "Verdict"]
__version__ = "0.1.0"

_OLD_NAMES = {
    **{name: f"python -m prism_jax {name}" for name in ("label", "judge", "curate", "promise", "counterfactual")},
    **{f"{name}.__main__": f"python -m prism_jax {name}" for name in ("audit", "probe", "report")},
    "people.__main__": "python -m prism_jax evaluate --scores=LOG --columns=...",
    "experiments.export_traces": "python -m prism_jax official_scores --records=FILE",
    "experiments.official_scores": "python -m prism_jax official_scores",
    "experiments.pathways": "python -m prism_jax.experiments training_pathways",
    "streams_from_records": "python -m prism_jax label --records=FILE",
    "preflight": "python -m prism_jax.train --check",
    "policy": "prism_jax.agent and prism_jax.scoring",
    "published": "prism_jax.audit",
    "recipes": "prism_jax.runs and prism_jax.commands",
    "slots": "prism_jax.scoring.slots",
}


class _OldNames:
    """Asked last for a module that nothing provides: says what an old name of the package is called now."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        package, _, rest = name.partition(".")
        if package == __name__ and rest in _OLD_NAMES:
            raise ModuleNotFoundError(f"{name} is now {_OLD_NAMES[rest]}", name=name)


sys.meta_path.append(_OldNames)


def __getattr__(name: str) -> Any:
    """Loads the gate when it is first asked for, so that importing the package stays light."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from prism_jax import gate

    return getattr(gate, name)
