"""The sizes of the tiny students of the tests."""

from prism_jax.student.model_config import StudentConfig

SMALL = dict(hidden_dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)
GROUPED = dict(vocab_size=61, hidden_dim=24, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=40)


def small(**changes):
    """A student of two layers; to be given a vocabulary."""
    return StudentConfig(**SMALL | changes)


def grouped(**changes):
    """A student whose products have shapes of their own, and whose keys serve two queries each."""
    return StudentConfig(**GROUPED | changes)
