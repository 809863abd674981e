"""A student with the words of its prompt: what every pass reads and writes with."""

from __future__ import annotations

import dataclasses

from prism_jax.student.prompting.template import Template
from prism_jax.student.qwen3 import Params, Qwen3


@dataclasses.dataclass(frozen=True, eq=False)
class Student:
    """A language model, its parameters and the template that it was trained with."""

    model: Qwen3  # the static half, over which jitted functions may close
    params: Params
    template: Template  # over the student's tokenizer
