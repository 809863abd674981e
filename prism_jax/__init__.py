"""The calibrated decision layer for proactive agents, in JAX/Flax.

Left of the scores table is the language model (`streams`, `prompting`, `student`, `training`, `policy`); right of it is
decision science that works on the scores of any agent (`decision`, `evaluation`, `report`) and loads no Flax. Only
recipes, experiments and mains combine the two halves.
"""

__version__ = "0.1.0"
