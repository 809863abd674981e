"""The calibrated decision layer for proactive agents, in JAX/Flax.

    from prism_jax import Gate

The language model (`streams`, `student`, `training`) writes the scores table. The packages that read it (`decision`,
`evaluation`, `report`) work on the scores of any agent and load no Flax. Runs, commands, experiments and the agent
combine the two halves. `python -m prism_jax` lists the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prism_jax.gate import Gate, Verdict

__all__ = ["Gate", "Verdict"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Loads the gate when it is first asked for, so that importing the package stays light."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from prism_jax import gate

    return getattr(gate, name)
