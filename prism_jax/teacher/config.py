"""The config of `python -m prism_jax.label`."""

from __future__ import annotations

import dataclasses

from prism_jax.remote.config import EndpointConfig, RemoteConfig
from prism_jax.teacher.labelling import LabellingConfig
from prism_jax.teacher.prompts import PromptSettings


@dataclasses.dataclass(frozen=True)
class TeacherConfig:
    """The whole config."""

    endpoint: EndpointConfig
    remote: RemoteConfig = dataclasses.field(default_factory=RemoteConfig)
    prompt: PromptSettings = dataclasses.field(default_factory=PromptSettings)
    labelling: LabellingConfig = dataclasses.field(default_factory=LabellingConfig)
