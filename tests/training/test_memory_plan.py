"""The bytes of a plan agree with arrays that exist, with XLA's own report and with arithmetic on published sizes."""

import dataclasses
import functools
import runpy

import jax
import pytest
import tiny
import tiny_step
from student_sizes import small

from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.student.prompting.packing import Sizes, empty_row
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training.job import step_shape
from prism_jax.training.memory import (
    MemoryPlan,
    Persistent,
    compiled_bytes,
    estimate,
    parse_bytes,
    persistent,
    plan_memory,
)
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.step import StepShape, init_state
from prism_jax.training.run_config import RunConfig, TrainingConfig

WIDE = small(vocab_size=512, hidden_dim=128, head_dim=32, mlp_dim=384, tied=False, remat="full")


def shape(student=WIDE, responses=64, **training):
    size = Sizes(224, 64, 32, 4, 4, responses)
    slots = Slots(Qwen3(student), 1, 2, size.window)
    config = TrainingConfig(**{"batch": 8, **training})
    return StepShape(Objective(slots, tiny.CONFIG.loss, tiny_step.POINT), config, empty_row(size), make_mesh())


def held(tree):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def test_what_persists_is_counted_to_the_byte():
    student = dataclasses.replace(tiny.CONFIG.student, param_dtype="bfloat16")
    bfloat16 = dataclasses.replace(tiny.CONFIG, student=student)
    config = tiny.with_training(bfloat16, master="split", first_moment="bfloat16", second_moment="factored")
    planned, source = step_shape(config)
    found = persistent(planned)
    state = jax.eval_shape(lambda: init_state(planned.slots.model, planned.training, planned.mesh, jax.random.key(0)))
    assert source == "the streams"
    assert found.parameters == held(state.params)
    assert found.masters == held(state.optimizer.master) == found.parameters
    assert found.moments == held(state.optimizer.moments)
    assert found.batch == 2 * held(tiny_step.batch_of(*range(config.training.batch)))
    batch = tiny_step.batch_of(*range(config.training.batch))
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(batch)]
    assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(planned.batch)] == shapes


@functools.cache
def by_xla_and_estimated(layers, remat):
    planned = shape(dataclasses.replace(WIDE, num_layers=layers, remat=remat))
    return compiled_bytes(planned), estimate(planned, "xla").peak


@pytest.mark.slow
def test_a_rematerialised_layer_adds_its_gradient_and_its_input():
    """The difference that six layers make in XLA's report, which excludes all memory that does not grow with layers."""
    few, many = by_xla_and_estimated(2, "full"), by_xla_and_estimated(8, "full")
    assert many[1] - few[1] == pytest.approx(many[0] - few[0], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "remat"), [(2, "full"), (8, "full"), (4, "dots"), (4, "none")])
def test_the_estimate_is_within_a_quarter_of_what_the_step_compiles_to(layers, remat):
    compiled, estimated = by_xla_and_estimated(layers, remat)
    assert estimated == pytest.approx(compiled, rel=0.25)


@pytest.mark.slow
def test_without_responses_the_loss_needs_no_memory():
    student = dataclasses.replace(WIDE, vocab_size=16384, num_layers=1)
    planned = shape(student, responses=0)
    assert estimate(planned, "xla").loss == 0 < estimate(shape(student), "xla").loss
    assert estimate(planned, "xla").peak == pytest.approx(compiled_bytes(planned), rel=0.25)


def test_microbatches_hold_the_sum_of_their_gradients_and_a_part_of_the_activations():
    student = dataclasses.replace(WIDE, param_dtype="bfloat16", dtype="bfloat16")
    whole, parts = (estimate(shape(student, accumulation=depth), "cudnn") for depth in (1, 4))
    assert parts.gradients == 3 * whole.gradients  # gradients in bfloat16 and their sum in float32
    assert parts.kept == whole.kept / 4


def test_frozen_layers_have_no_gradients():
    all_, some = (estimate(shape(frozen=frozen), "xla").gradients for frozen in ((), ("embedding|head/kernel",)))
    assert all_ - some == 2 * 512 * 128 * 4


@pytest.mark.slow
def test_a_plan_that_does_not_fit_is_rejected_in_one_line_that_names_the_largest_part():
    planned = shape()
    found = plan_memory(planned)
    found.check()
    tight = dataclasses.replace(found, limit=found.total - 1)
    with pytest.raises(
        ValueError, match=r"^plan: found [\d.]+ MiB per device, of which [\d.]+ MiB gradients and act"
    ) as error:
        tight.check()
    assert "\n" not in str(error.value)
    dataclasses.replace(found, limit=found.total).check()


@pytest.mark.slow
def test_for_a_device_that_is_not_present_the_estimate_applies():
    found = plan_memory(shape(), limit=2**30)
    assert not found.devices_present and found.total == sum(found.persistent) + found.working.peak
    assert "such a device is not present" in found.lines()["total"]
    here = plan_memory(shape())
    assert here.devices_present and here.total == sum(here.persistent) + here.compiled


def test_the_papers_recipe_fits_one_a100_by_arithmetic(root):
    """The persistent bytes of 8,190,735,360 parameters of 2 bytes and the layer inputs, both calculated by hand."""
    recipe = runpy.run_path(str(root / "configs" / "qwen3_8b_a100.py"))
    config = from_config_dict(RunConfig, recipe["get_config"]())
    planned, source = step_shape(config)
    assert "assumed to be 3584 + 512 tokens" in source
    planned = planned.running(remat="full")
    found = estimate(planned, "cudnn")
    parameters = sum(leaf.size for leaf in jax.tree.leaves(planned.slots.model.abstract_params()))
    assert parameters == 8_190_735_360
    assert found.gradients == 2 * parameters
    assert found.kept == 36 * 4 * 4096 * 4096 * 2
    held = 3 * 2 * parameters
    planned_memory = MemoryPlan(Persistent(held, 0, 0, 0), found, 0, "cpu", False, "cudnn", "full", 80 * 2**30)
    planned_memory.check()
    with pytest.raises(ValueError, match=r"expected at most 64\.00 GiB"):
        dataclasses.replace(planned_memory, limit=64 * 2**30).check()


@pytest.mark.parametrize(
    ("text", "size"), [("80GiB", 80 * 2**30), ("24 GB", 24 * 10**9), ("1.5MiB", 1572864), ("7", 7)]
)
def test_sizes_are_read(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "80gib", "GiB", "-1GB", "1e3"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match=r"^device_memory: found .*, expected a size such as 80GiB"):
        parse_bytes(text)
    with pytest.raises(ValueError, match=r"^disk: found "):
        parse_bytes(text, "disk")
