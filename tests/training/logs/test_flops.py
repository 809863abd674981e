"""The work of packed rows, compared with attention counted pair by pair and with XLA's count of a dense step."""

import jax
import numpy as np
import pytest
import tiny_step

from prism_jax.student.attention import no_branches
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.training.logs.flops import Work, flops, work


def test_a_batch_is_counted_decision_by_decision():
    """Counts by brute force the ancestors of every branch token and the predecessors of every trunk token."""
    batch = jax.tree.map(np.asarray, tiny_step.batch_of(0, 1, 2))
    tokens = pairs = 0
    for row in range(3):
        stop, branch, leaf = batch.stop[row], batch.branch[row], batch.leaf[row]
        real = np.flatnonzero(branch)
        trunk = max(stop[at] for at in real)
        tokens += trunk + len(real)
        pairs += sum(at + 1 for at in range(trunk))
        for at in real:
            own = [k for k in real if k <= at and branch[k] == branch[at] and leaf[k] in (0, leaf[at])]
            pairs += stop[at] + len(own)
    found = work(batch)
    assert (found.tokens, found.pairs) == (tokens, pairs)
    assert found.responses == (batch.response_weight > 0).sum()
    assert found.labels == batch.need_weight.sum() + (batch.accept_weight * batch.logged).sum()


def test_dense_flops_agree_with_those_that_xla_counts():
    """Compares the forward pass of a wide model, in which products dominate; XLA also computes masked scores here."""
    student = StudentConfig(
        vocab_size=8, hidden_dim=256, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64, mlp_dim=768, unroll=2
    )
    model, length = Qwen3(student), 64
    ids = jax.ShapeDtypeStruct((1, length), np.int32)
    lowered = jax.jit(lambda p, t, at: model.hidden(p, t, at, no_branches(1, length))).lower(
        model.abstract_params(), ids, ids
    )
    counted = lowered.compile().cost_analysis()["flops"]
    ours = flops(student, Work(length, length * length, 0, 0)) / 3
    assert ours == pytest.approx(counted, rel=0.03)
