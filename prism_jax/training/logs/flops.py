"""How much arithmetic a step needs, and how much a device can do: their ratio is model FLOPs utilisation (MFU).

Counted is what the loss needs and nothing else, as in PaLM's appendix B (arXiv 2204.02311): padding, rematerialised
layers and attention scores that a mask hides do not count. A product of a token with a matrix of n parameters is 2 n
forward and 4 n backward; a query's products with a key and a value are 4 per head dimension, and twice that backward.
The head is read at supervised tokens only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prism_jax.prompting.packing import Packed
from prism_jax.student import StudentConfig

# Dense bfloat16 FLOP/s by the start of JAX's device_kind, longer names first; sparse figures of data sheets halved.
PEAKS = {
    "NVIDIA A100": 312e12,  # NVIDIA A100 Tensor Core GPU, data sheet
    "NVIDIA H100 PCIe": 756e12,  # NVIDIA H100 Tensor Core GPU, data sheet
    "NVIDIA H100 NVL": 835e12,  # the same, later edition
    "NVIDIA H100": 989e12,  # the same: SXM
    "NVIDIA H200": 989e12,  # NVIDIA H200 Tensor Core GPU, data sheet
    "NVIDIA L4": 121e12,  # NVIDIA L4 Tensor Core GPU, data sheet
    "TPU v4": 275e12,  # cloud.google.com/tpu/docs/v4
    "TPU v5 lite": 197e12,  # cloud.google.com/tpu/docs/v5e
    "TPU v5": 459e12,  # cloud.google.com/tpu/docs/v5p
    "TPU v6 lite": 918e12,  # cloud.google.com/tpu/docs/v6e
}


class Work(NamedTuple):
    """What a batch holds.

    Attributes:
      tokens: That some decision or response depends on.
      pairs: Of a token and a token that it attends to, itself included.
      responses: Supervised tokens.
      labels: Of need and of acceptance.
    """

    tokens: int
    pairs: int
    responses: int
    labels: int


def work(batch: Packed) -> Work:
    """Counts a batch of packed rows, as NumPy arrays; trunk tokens up to the last one that a branch sees."""
    real = batch.branch > 0
    place = np.arange(batch.trunk.shape[1])
    trunk = place < np.max(batch.stop * real, axis=1)[:, None]
    sees = place + 1 - (0 if batch.begin is None else batch.begin)
    observed = (batch.accept_weight > 0) & (batch.logged > 0)
    return Work(
        tokens=int(trunk.sum() + real.sum()),
        # Positions continue the trunk's, so a branch token at position p sees p tokens and itself.
        pairs=int((sees * trunk).sum() + ((batch.positions.astype(np.int64) + 1) * real).sum()),
        responses=int((batch.response_weight > 0).sum()),
        labels=round(float(batch.need_weight.sum())) + int(observed.sum()),
    )


def flops(student: StudentConfig, done: Work) -> float:
    """Floating-point operations of a step forward and backward, where all parameters train."""
    heads, keys = student.num_heads * student.head_dim, student.num_kv_heads * student.head_dim
    layer = student.hidden_dim * (2 * heads + 2 * keys + 3 * student.mlp_dim)
    matrices = student.num_layers * layer * done.tokens + student.vocab_size * student.hidden_dim * done.responses
    return 6.0 * matrices + 12.0 * student.num_layers * heads * done.pairs


def peak(device_kind: str) -> float | None:
    """Dense bfloat16 FLOP/s of a device, None where unknown."""
    return next((PEAKS[name] for name in sorted(PEAKS, key=len, reverse=True) if device_kind.startswith(name)), None)
