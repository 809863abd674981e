"""`remat = auto` becomes the policy with the least recomputation that fits, by the estimate."""

import dataclasses
import functools
import types

import jax
import numpy as np
import pytest
import tiny
import tiny_step
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.student import presets
from prism_jax.student.prompting.packing import Sizes, empty_row
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.student.sharding import make_mesh
from prism_jax.training import memory as memory_module
from prism_jax.training.memory import RESERVE, estimate, fitted, fitted_here, persistent, plan_memory
from prism_jax.training.optimization import step as step_module
from prism_jax.training.optimization.objective import Objective
from prism_jax.training.optimization.step import StepShape, abstract_state, make_step
from prism_jax.training.run_config import TrainingConfig

# Large enough for a GPU's reserve to be a small part, with policies that differ by hundreds of MiB; only shapes exist.
WIDE = presets.qwen3_1_7b(vocab_size=32_000, num_layers=16, dtype="bfloat16", param_dtype="bfloat16", remat="auto")

# From the least recomputation of matrix products and attention to the most. `offload` is only taken where it is named.
ORDER = {"cudnn": ["flash", "dots", "attention", "qkv", "full"], "xla": ["none", "dots", "attention", "qkv", "full"]}


# Where the student of these tests takes which path of attention.
PLATFORMS = {"cudnn": "cuda", "xla": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def trace_states_once():
    """Shapes of the state depend on nothing but the arguments, and tracing them takes most of the time here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_module, "abstract_state", functools.cache(abstract_state))
        yield


@functools.cache
def shape(remat="auto"):
    size = Sizes(3584, 512, 128, 8, 8, 256)
    slots = Slots(Qwen3(dataclasses.replace(WIDE, remat=remat)), 1, 2, size.window)
    config = TrainingConfig(batch=8, master="float32")
    return StepShape(Objective(slots, tiny.CONFIG.loss, tiny_step.POINT), config, empty_row(size), make_mesh())


@functools.cache
def needed(remat, attention):
    """Bytes of the state and of a step with a policy that the config names, and the reserve."""
    step = shape(remat)
    return sum(persistent(step)) + estimate(step, attention).peak + (RESERVE if attention == "cudnn" else 0)


@functools.cache
def chosen(attention, limit):
    return fitted(shape(), PLATFORMS[attention], limit).student.remat


def best(attention, limit):
    """The first policy that fits, by trying all of them."""
    return next((remat for remat in ORDER[attention] if needed(remat, attention) <= limit), "full")


def bounds(attention):
    """The limits at which a policy begins to fit, one byte less, and none to speak of."""
    fitting = [needed(remat, attention) for remat in ORDER[attention]]
    return [0, 1, *fitting, *(limit - 1 for limit in fitting)]


@pytest.mark.parametrize("attention", ORDER)
def test_the_least_recomputation_that_fits_is_chosen_to_the_byte(attention):
    assert RESERVE == 1.5 * 2**30
    found = {chosen(attention, limit) for limit in bounds(attention)}
    assert all(chosen(attention, limit) == best(attention, limit) for limit in bounds(attention))
    assert found == {*ORDER[attention]}


def test_the_host_is_left_alone_where_nobody_names_it():
    """Its copies took longer than they saved where they were measured, though the estimate needs fewer products."""
    wide = shape().running(mlp_dim=8192)
    limit = sum(persistent(wide)) + estimate(wide.running(remat="offload"), "cudnn").peak + RESERVE
    assert fitted(wide, "cuda", limit).student.remat == "full"
    assert fitted(wide.running(remat="offload"), "cuda", limit).student.remat == "offload"


@given(attention=st.sampled_from([*ORDER]), limits=st.tuples(*[st.integers(2**30, 2**36)] * 2).map(sorted))
def test_more_memory_never_recomputes_more(attention, limits):
    few, many = (chosen(attention, limit) for limit in limits)
    assert (few, many) == tuple(best(attention, limit) for limit in limits)
    assert ORDER[attention].index(few) >= ORDER[attention].index(many)


def test_the_order_of_policies_is_that_of_what_they_keep():
    """Only on the host does a policy keep more than its device has; the estimate counts the device."""
    for attention, order in ORDER.items():
        kept = [estimate(shape(remat), attention).kept for remat in order]
        assert kept == sorted(kept, reverse=True) and len({*kept}) == len(kept)
    assert estimate(shape("offload"), "cudnn").kept == estimate(shape("full"), "cudnn").kept


def test_a_gpu_without_fused_attention_keeps_the_reserve():
    """In float32, cuDNN's attention cannot run; elementwise results are recomputed all the same."""
    single = shape().running(dtype="float32")
    held = sum(persistent(single))
    needed_by = {remat: held + estimate(single.running(remat=remat), "xla").peak for remat in ("dots", "qkv")}
    assert fitted(single, "cuda", 2**45).student.remat == "dots"
    assert fitted(single, "cuda", needed_by["dots"] + RESERVE - 1).student.remat != "dots"
    assert fitted(single, "cuda", needed_by["qkv"] + RESERVE).student.remat == "qkv"
    assert fitted(single, "cpu", 2**45).student.remat == "none"


@pytest.mark.parametrize("attention", ORDER)
@pytest.mark.parametrize("remat", [*{policy: None for order in ORDER.values() for policy in order}])
def test_a_policy_that_the_config_names_stays(attention, remat):
    for limit in (0, 2**40):
        assert fitted(shape(remat), PLATFORMS[attention], limit) is shape(remat)


def test_only_the_policy_changes():
    found = fitted(shape(), "cuda", 2**40)
    assert found == shape().running(remat="flash")
    assert dataclasses.replace(found.student, remat="auto") == shape().student


def test_a_plan_reports_the_chosen_policy():
    limit = needed("qkv", "cudnn")
    found = plan_memory(shape(), limit=limit)
    assert found.remat == best("cudnn", limit) and found.working == estimate(shape(found.remat), "cudnn")
    assert sum(found.persistent) + found.working.peak + RESERVE <= limit


def test_a_step_needs_a_policy():
    with pytest.raises(ValueError) as error:
        make_step(shape())
    assert str(error.value).startswith("student.remat: found 'auto', expected a policy")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("memory", "remat"), [(0, "full"), (2**40, "none")])
def test_a_step_is_fitted_to_its_own_devices(memory, remat, monkeypatch):
    monkeypatch.setattr(memory_module, "device_memory", lambda device: memory if device.platform == "cpu" else None)
    resolved = fitted_here(tiny_step.shape(tiny_step.slots(remat="auto")))
    assert resolved.slots == tiny_step.slots(remat=remat)
    assert fitted_here(resolved).slots == resolved.slots  # once chosen, it stays
    assert make_step(resolved)


@pytest.mark.parametrize("ask", [fitted_here, plan_memory])
def test_the_memory_that_counts_is_that_of_a_device_of_this_process(ask, monkeypatch):
    """A device of another process does not tell its own."""

    def stop(device):
        raise tiny.StoppedError(device)

    monkeypatch.setattr(memory_module, "device_memory", stop)
    mesh = types.SimpleNamespace(devices=np.array(jax.devices()), local_devices=["own"])
    with pytest.raises(tiny.StoppedError, match=r"^own$"):
        ask(types.SimpleNamespace(mesh=mesh, student=tiny.CONFIG.student))
