"""The tiny student and its prompt, which the experiments on the simulator share."""

from prism_jax.prompting.template import PromptConfig
from prism_jax.student import StudentConfig

PROMPT = PromptConfig(system="Watch.")
STUDENT = StudentConfig(
    vocab_size=1024,
    hidden_dim=32,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_dim=16,
    mlp_dim=96,
    rope_theta=1e3,
    initializer_range=0.15,
    unroll=2,
)
