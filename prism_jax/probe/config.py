"""The settings of a probe and of its run."""

from __future__ import annotations

import dataclasses
from typing import Literal

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.runtime.config import check_above, check_at_least
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig

NeedTarget = Literal["marginal", "given_accept"]
"""What p_need estimates, as for a student (`loss.need_target`)."""


@dataclasses.dataclass(frozen=True)
class StatesConfig:
    """The frozen language model of a probe.

    Attributes:
      weights: A GGUF file, or a directory as published on Hugging Face; empty reads words alone.
      blocks: Numbers of the blocks after which states are read, ascending.
      components: Number of principal components of the states.
      ridge: Ridge on the weights of the standardised components.
      system: Text of the system message.
      context: Maximum number of tokens up to the end of one decision.
    """

    weights: str = ""
    blocks: tuple[int, ...] = (12, 18)
    components: int = 64
    ridge: float = 3.0
    system: str = "Watch the user and judge whether to offer help."
    context: int = 8192

    def __post_init__(self) -> None:
        check_at_least(self, 1, "components", "context")
        check_above(self, 0, "ridge")
        if not self.blocks or list(self.blocks) != sorted(set(self.blocks)) or self.blocks[0] < 1:
            raise ValueError(f"blocks: found {self.blocks}, expected ascending numbers from 1")


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """How a probe is fitted.

    Attributes:
      ridge: Ridge on the weights of the standardised columns of words.
      votes: Whether the share of annotators who would accept is the label, where there are votes.
      inner: Number of folds of training streams that give the predictions on which the maps are fitted.
      need_target: What p_need estimates. `marginal` is Pr(need | what is seen). `given_accept` is Pr(need | what is
        seen, the offer accepted), fitted on accepted offers, with which the gate is optimal under any dependence of
        need and acceptance (docs/maths.md, section 2).
    """

    ridge: float = 100.0
    votes: bool = True
    inner: int = 4
    need_target: NeedTarget = "marginal"

    def __post_init__(self) -> None:
        check_above(self, 0, "ridge")
        check_at_least(self, 2, "inner")


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
    """A complete run of a probe: the sections of a student's run that it shares with it, and its own two."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    simulator: SimulatorConfig = dataclasses.field(default_factory=SimulatorConfig)
    fit: FitConfig = dataclasses.field(default_factory=FitConfig)
    states: StatesConfig = dataclasses.field(default_factory=StatesConfig)
    decision: OperatingPoint = dataclasses.field(default_factory=OperatingPoint)
    calibration: CalibrationConfig = dataclasses.field(default_factory=CalibrationConfig)
