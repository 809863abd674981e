"""What the tests of live streams and of the slow pass share: a tiny student, and streams with several offers."""

import dataclasses

import pytest

from prism_jax.streams import Candidate
from prism_jax.streams.edit import map_steps
from prism_jax.student import Qwen3, StudentConfig


@pytest.fixture(scope="session")
def model(template):
    sizes = dict(hidden_dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)
    return Qwen3(StudentConfig(vocab_size=template.tokenizer.size, **sizes, initializer_range=0.5))


@pytest.fixture(scope="session")
def with_two_offers(simulated):
    """Simulated streams with a step at every event but the first; every third event has two candidates."""
    two = (Candidate(text="Tea?"), Candidate(text="Or coffee?", y_accept=1.0))

    def change(step):
        return dataclasses.replace(step, candidates=two) if step.event % 3 == 0 else step

    return [map_steps(stream, change) for stream in simulated]
