"""The config of `python -m prism_jax.label`."""

from __future__ import annotations

import dataclasses

from prism_jax.remote.config import EndpointConfig, RemoteConfig
from prism_jax.teacher.labelling import LabellingConfig
from prism_jax.teacher.prompts import PromptSettings


@dataclasses.dataclass(frozen=True)
class TeacherConfig:
    """The whole config."""

    endpoint: EndpointConfig  # the teacher's endpoint
    remote: RemoteConfig = dataclasses.field(default_factory=RemoteConfig)  # cache, budget and redaction
    # what the teacher is shown and asked for
    prompt: PromptSettings = dataclasses.field(default_factory=PromptSettings)
    # which passes are asked for, and how often a wrong answer is asked for again
    labelling: LabellingConfig = dataclasses.field(default_factory=LabellingConfig)
