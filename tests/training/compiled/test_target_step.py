"""A small step as XLA compiles it for eight A100s that are not present."""

import pytest

pytestmark = pytest.mark.slow

STEP = """
import json, math, sys
sys.path.insert(0, "tests/training/compiled")
from prism_jax.student.sharding import pretend_devices
pretend_devices(8)
from target_shapes import step_on
from prism_jax.training.memory import persistent
from prism_jax.training.compiled import accounting, hlo, theory
from prism_jax.training.compiled.absent import compile_step
from prism_jax.training.compiled.cards import card

shape, chip = step_on(fsdp=8, student={"remat": "flash"}), card("a100-80gb")
compiled = compile_step(shape, chip, chip.memory)
program, held = hlo.parse(compiled.as_text()), persistent(shape)
fused = accounting.fused_attention(program)
print(json.dumps({
    "forward": fused.forward,
    "backward": fused.backward,
    "state": held.parameters + held.masters + held.moments,
    "donated": compiled.memory_analysis().alias_size_in_bytes,
    "found": {kind: one.bytes for kind, one in accounting.collectives(program, 8).items()},
    "zero3": theory.zero3(shape)._asdict(),
    "dots": accounting.dots(program) / theory.needed_dots(shape),
}))
"""


@pytest.fixture(scope="module")
def step(on_target):
    (found,) = on_target(STEP)
    return found


def test_every_block_attends_by_fused_kernels(step):
    """Trunk and branches take one call each, in each of three blocks, and the backward pass recomputes none."""
    assert (step["forward"], step["backward"]) == (6, 6)


def test_the_whole_state_is_updated_in_place(step):
    """The counters of the step and of the optimizer are the few bytes beside parameters, masters and moments."""
    assert 0 <= step["donated"] - step["state"] < 64


def test_no_product_is_computed_twice(step):
    assert step["dots"] == pytest.approx(1, abs=1e-6)


def test_the_cards_exchange_what_zero3_needs(step):
    found, zero3 = step["found"], step["zero3"]
    assert 1 <= found["all-gather"] / zero3["gathered"] < 1.05
    # The head is split by vocabulary, so the gradients of its 256 supervised tokens are summed instead of its own.
    assert 0 <= found["reduce-scatter"] - zero3["scattered"] - 256 * 128 * 2 < 4096
    # Weights of norms and scalars only.
    assert found["all-reduce"] < zero3["scattered"] / 50
