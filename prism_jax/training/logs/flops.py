"""The arithmetic that a step needs; over a device's peak (`compiled/cards.py`) it is model FLOPs utilisation (MFU).

As in PaLM's appendix B (arXiv 2204.02311), only the operations that the loss requires are counted: padding,
rematerialised layers and masked attention scores are not. Multiplying a token by a matrix of n parameters takes 2 n
operations in the forward pass and 4 n in the backward pass. The products of a query with a key and a value take 4 per
head dimension, and twice that in the backward pass. The head is computed at supervised tokens only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.packing import Packed


class Work(NamedTuple):
    """The work that a batch requires."""

    tokens: int  # number of tokens on which some decision or response depends
    pairs: int  # number of pairs of a token and a token that it attends to, including itself
    responses: int  # number of supervised response tokens
    labels: int  # number of labels of need and of acceptance


def work(batch: Packed) -> Work:
    """Counts the work of a batch of packed rows, given as NumPy arrays.

    Trunk tokens count up to the last one that a branch attends to.
    """
    real = batch.branch > 0
    place = np.arange(batch.trunk.shape[1])
    trunk = place < np.max(batch.stop * real, axis=1)[:, None]
    sees = place + 1 - (0 if batch.begin is None else batch.begin)
    observed = (batch.accept_weight > 0) & (batch.logged > 0)
    return Work(
        tokens=int(trunk.sum() + real.sum()),
        # Branch positions continue those of the trunk, so a branch token at position p attends to p + 1 tokens.
        pairs=int((sees * trunk).sum() + ((batch.positions.astype(np.int64) + 1) * real).sum()),
        responses=int((batch.response_weight > 0).sum()),
        labels=round(float(batch.need_weight.sum())) + int(observed.sum()),
    )


def flops(student: StudentConfig, done: Work) -> float:
    """Floating-point operations of the forward and backward pass of a step in which all parameters train."""
    heads, keys = student.num_heads * student.head_dim, student.num_kv_heads * student.head_dim
    layer = student.hidden_dim * (2 * heads + 2 * keys + 3 * student.mlp_dim)
    matrices = student.num_layers * layer * done.tokens + student.vocab_size * student.hidden_dim * done.responses
    return 6.0 * matrices + 12.0 * student.num_layers * heads * done.pairs
