"""The calibrated decision layer for proactive agents, in JAX/Flax.

The language model (`streams`, `prompting`, `student`, `training`, `policy`) writes the scores table. The packages that
read it (`decision`, `evaluation`, `report`) work on the scores of any agent and load no Flax. Only recipes, experiments
and mains combine the two halves.
"""

__version__ = "0.1.0"
