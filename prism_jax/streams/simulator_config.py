"""The `simulator` section of the config: which population of simulated streams, and its settings."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from prism_jax.runtime.dataclass_config import check, check_at_least, check_shares

Population = Literal["items", "switches"]


@dataclasses.dataclass(frozen=True)
class SimulatorConfig:
    """Settings of the simulator."""

    # which streams are drawn: `items` (`prism_jax.streams.simulator`), or `switches`, where the meaning of an event
    # depends on a state that has to be worked out event by event (`prism_jax.streams.switches`)
    population: Population = "items"
    switches: int = 2  # number of settings that are switched in the population `switches`, 2 or 3; unused by `items`
    seed: int = 0  # seed of the population of streams
    min_events: int = 6  # minimum number of events per stream, including the arrival
    max_events: int = 8  # maximum number of events per stream
    # maximum number of steps per stream with a response; the first offers that were needed and accepted get one
    responses: int = 1
    # Dependence of need and acceptance, in [-1, 1]. At 0 they are independent given what is seen, and the paper's Eq. 1
    # is exactly optimal; at 1 the less likely one implies the other; at -1 they coincide as rarely as their
    # probabilities allow.
    dependence: float = 0.0
    hidden_effect: float = 0.9  # strength of the hidden variable's effect on acceptance, in [0, 1]; 0 switches it off
    teacher: bool = False  # whether every step has a teacher's probabilities of need and acceptance
    # standard deviation of the teacher's error in log-odds, drawn independently for each probability
    teacher_blur: float = 0.5
    # bias of the teacher, added to all of its log-odds; above 0 it overestimates need and acceptance
    teacher_bias: float = 0.0

    def __post_init__(self) -> None:
        check(self, "switches", self.switches in (2, 3), "2 or 3")
        check(self, "min_events", self.min_events >= 2, "at least 2 (the arrival and one more)")
        check(self, "max_events", self.max_events >= self.min_events, f"at least min_events = {self.min_events}")
        check_at_least(self, 0, "responses")
        check(self, "dependence", -1 <= self.dependence <= 1, "a number in [-1, 1]")
        check_shares(self, "a number in [0, 1]", "hidden_effect")
        check(self, "teacher_blur", 0 <= self.teacher_blur < math.inf, "at least 0, in log-odds")
        check(self, "teacher_bias", math.isfinite(self.teacher_bias), "a finite number of log-odds")
