"""The config of `prism_jax.judge`: who judges, what they are shown, and how their verdicts become labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from prism_jax.judges.panels import PanelConfig
from prism_jax.judges.prompts import Asked
from prism_jax.remote.config import EndpointConfig, RemoteConfig
from prism_jax.runtime.config import check_at_least


@dataclasses.dataclass(frozen=True)
class JudgesConfig:
    """A panel of judges."""

    name: str = "judges"  # name of the panel in tables
    # the judges by name, an odd number; their order is that of the votes in labelled streams
    endpoints: Mapping[str, EndpointConfig] = dataclasses.field(default_factory=dict)
    remote: RemoteConfig = dataclasses.field(default_factory=RemoteConfig)
    panel: PanelConfig = dataclasses.field(default_factory=PanelConfig)
    # `all` asks about silence and about every candidate; `made` asks only about what a recorded assistant did (the
    # candidate with `logged` true, or silence), which is all that ProactiveBench's own scores need
    asked: Asked = "all"
    most_events: int = 40  # maximum number of events that a question shows, the newest ones
    retries: int = 2  # how often an invalid answer is returned to the judge with what is wrong with it

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError(f"name: found {self.name!r}, expected words")
        if len(self.endpoints) % 2 == 0:
            raise ValueError(f"endpoints: found {len(self.endpoints)} judges, expected an odd number, such as 3")
        check_at_least(self, 1, "most_events")
        check_at_least(self, 0, "retries")
