"""The calibrated decision layer for proactive agents, in JAX/Flax.

Left of the scores table is the language model (`streams`, `prompting`, `student`, `training`, `policy`); right of it is
decision science on anybody's scores (`decision`, `evaluation`), which loads no Flax. Only the mains tie the halves.
"""

__version__ = "0.1.0"
