"""The tiny student and its prompt, which the experiments on the simulator share."""

from prism_jax.prompting.template import PromptConfig
from prism_jax.student import StudentConfig

PROMPT = PromptConfig(system="Watch.")
STUDENT = StudentConfig(
    vocabulary_size=1024,
    width=32,
    layers=2,
    heads=2,
    kv_heads=2,
    head_dim=16,
    ffn=96,
    rope_theta=1e3,
    initializer_range=0.15,
    unroll=2,
)
