"""The settings of a probe and of its run."""

from __future__ import annotations

import dataclasses
from typing import Literal

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.runtime.dataclass_config import check, check_above, check_at_least
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig

NeedTarget = Literal["marginal", "given_accept"]
"""What p_need estimates, as for a student (`loss.need_target`)."""


@dataclasses.dataclass(frozen=True)
class StatesConfig:
    """The frozen language model of a probe."""

    weights: str = ""  # a GGUF file, or a directory as published on Hugging Face; empty reads words alone
    blocks: tuple[int, ...] = (12, 18)  # numbers of the blocks after which states are read, ascending
    components: int = 64  # number of principal components of the states
    ridge: float = 3.0  # ridge on the weights of the standardised components
    system: str = "Watch the user and judge whether to offer help."  # text of the system message
    context: int = 8192  # maximum number of tokens up to the end of one decision

    def __post_init__(self) -> None:
        check_at_least(self, 1, "components", "context")
        check_above(self, 0, "ridge")
        ascending = list(self.blocks) == sorted(set(self.blocks)) and min(self.blocks, default=0) >= 1
        check(self, "blocks", ascending, "ascending numbers from 1")


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """How a probe is fitted."""

    ridge: float = 100.0  # ridge on the weights of the standardised columns of words
    votes: bool = True  # whether the share of annotators who would accept is the label, where there are votes
    inner: int = 4  # number of folds of training streams that give the predictions on which the maps are fitted
    # what p_need estimates: `marginal` Pr(need | what is seen), `given_accept` Pr(need | what is seen, the offer
    # accepted), with which the gate is optimal under any dependence of need and acceptance (docs/maths.md, section 2)
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
