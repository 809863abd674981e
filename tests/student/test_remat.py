"""What each remat policy keeps and recomputes, and that none of them changes a gradient."""

import collections
import dataclasses
import functools
import itertools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from full_pass import QUICK
from student_sizes import grouped

from prism_jax.student.attention import no_branches
from prism_jax.student.layers import rotary_tables
from prism_jax.student.qwen3 import Qwen3, block
from prism_jax.student.remat import OFFLOADED, SAVED, Remat, keeping
from prism_jax.training.compiled.absent import as_on_cuda

POLICIES = tuple(policy for policy in typing.get_args(Remat) if policy != "auto")
KEEPING = tuple(policy for policy in POLICIES if policy != "none")
ROWS, LENGTH = 2, 10
TINY = grouped()  # every product has its own shape, except keys and values, and gate and up
HALF = dataclasses.replace(TINY, dtype="bfloat16", attention="cudnn")
NAMES = ("query", "key", "value", "output", "gate", "up")
WIDTHS = {"query": 32, "key": 16, "value": 16, "output": 24, "gate": 40, "up": 40}

# The products that the backward pass of a block recomputes, as the docstring of the module says. The last product of a
# block is never among them: no gradient needs its result.
RECOMPUTED = {
    "full": NAMES,
    "qkv": ("output", "gate", "up"),
    "attention": ("gate", "up"),
    "offload": ("query", "key", "value", "output", "up"),
    "dots": (),
    "flash": (),
    "none": (),
}


def loss(params, model, tokens):
    positions = jnp.tile(jnp.arange(LENGTH), (ROWS, 1))
    return jnp.mean(model.hidden(params, tokens, positions, no_branches(ROWS, LENGTH)) ** 3)


def model_of(remat, config=TINY):
    return Qwen3(dataclasses.replace(config, remat=remat))


def blocks_loss(layers, config, x):
    """A loss of the blocks alone, with plain attention: the whole model takes half as long again to compile."""
    rotary = rotary_tables(jnp.tile(jnp.arange(LENGTH), (ROWS, 1)), config.head_dim, config.rope_theta)

    def attend(q, k, v):
        k, v = (jnp.repeat(heads, config.num_heads // config.num_kv_heads, axis=2) for heads in (k, v))
        shares = jax.nn.softmax(jnp.einsum("blnh,bmnh->bnlm", q, k))
        return jnp.einsum("bnlm,bmnh->blnh", shares, v)

    def body(x, layer):
        return nnx.merge(block(config), layer)(x, rotary, attend), None

    return jnp.mean(jax.lax.scan(keeping(config.remat)(body), x, layers)[0] ** 3)


@pytest.fixture(scope="module")
def gradients(draw_params):
    """Loss and gradients of the blocks, by policy, compiled."""
    layers = draw_params(Qwen3(TINY))["layers"]
    x = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, LENGTH, TINY.hidden_dim)), jnp.float32)
    compute = jax.jit(jax.value_and_grad(blocks_loss, argnums=(0, 2)), static_argnums=1, compiler_options=QUICK)
    return functools.cache(lambda remat: jax.device_get(compute(layers, model_of(remat).config, x)))


@pytest.mark.slow
def test_no_policy_changes_a_gradient(gradients):
    wanted = gradients("none")
    assert all(np.abs(leaf).max() > 1e-2 for leaf in jax.tree.leaves(wanted))
    for remat in KEEPING:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-5), gradients(remat), wanted)


@pytest.fixture(scope="module")
def traced(equations):
    """The operations of a traced gradient, and those of the part of a block that the backward pass runs again."""

    @functools.cache
    def one(remat, config=TINY):
        model = model_of(remat, config)
        tokens = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)
        made = equations(lambda p, t: jax.grad(loss)(p, model, t), model.abstract_params(), tokens)
        again = [e for e in made if e.primitive.name.startswith(("remat", "checkpoint")) and e.params["differentiated"]]
        assert len(again) == 1  # one block, within the scan; with `none`, the product of gate and sigmoid
        return made, equations(
            lambda *args: jax.core.eval_jaxpr(again[0].params["jaxpr"], (), *args), *shapes(again[0])
        )

    return one


def shapes(equation):
    return [jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype) for variable in equation.invars]


def forward_products(equations):
    """Inner and outer widths of products x @ kernel; those of the backward pass contract other axes."""
    forward = (((1,), (0,)), ((), ()))
    products = [e for e in equations if e.primitive.name == "dot_general"]
    return collections.Counter(e.invars[1].aval.shape for e in products if e.params["dimension_numbers"] == forward)


def kernels(names):
    inner = {"output": 32}
    return collections.Counter((inner.get(name, 24), WIDTHS[name]) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("remat", POLICIES)
def test_a_policy_recomputes_the_products_that_it_does_not_keep(remat, traced):
    made, again = traced(remat)
    assert forward_products(again) == kernels(RECOMPUTED[remat])
    once = kernels(NAMES) + collections.Counter({(40, 24): 1})
    assert forward_products(made) == once + kernels(RECOMPUTED[remat])


@pytest.mark.parametrize("remat", KEEPING)
def test_a_block_keeps_its_input_and_what_the_policy_names(remat, traced, scan_results):
    made, _ = traced(remat)
    blocks = [e for e in made if e.primitive.name == "scan" and e.params["length"] == TINY.num_layers]
    _, stacked = scan_results(blocks[0])
    device = [aval.shape for aval in stacked if aval.memory_space == jax.memory.Space.Device]
    host = [aval.shape for aval in stacked if aval.memory_space == jax.memory.Space.Host]
    row = (TINY.num_layers, ROWS, LENGTH)
    assert sorted(device) == sorted([(*row, 24), *((*row, WIDTHS[name]) for name in SAVED[remat])])
    assert host == ([(*row, WIDTHS[name]) for name in OFFLOADED] if remat == "offload" else [])


def test_each_policy_keeps_what_the_one_before_it_does():
    kept = [set(SAVED[policy]) for policy in POLICIES if policy not in ("offload", "none")]
    assert all(before <= after for before, after in itertools.pairwise(kept))
    assert set(SAVED) == {*POLICIES} - {"none"} and SAVED["offload"] == ()
    for remat in SAVED:
        kept_somewhere = {*SAVED[remat], *(OFFLOADED if remat == "offload" else ())}
        assert kept_somewhere == {*NAMES} - {*RECOMPUTED[remat]}


@pytest.mark.parametrize("remat", ["dots", "flash"])
def test_flash_alone_keeps_the_results_of_fused_attention(remat, traced):
    """Traced as on a GPU, where the kernel of fused attention is one operation."""
    with as_on_cuda():
        made, again = traced(remat, HALF)
    runs = [sum(e.primitive.name.startswith("dot_product_attention_fwd") for e in part) for part in (made, again)]
    assert runs == ([1, 0] if remat == "flash" else [2, 1])
    assert sum(e.primitive.name.startswith("dot_product_attention_bwd") for e in again) == 1


@pytest.mark.parametrize("remat", POLICIES)
def test_without_gradients_a_policy_has_no_effect(remat, equations):
    model = model_of(remat)
    made = equations(lambda p, t: loss(p, model, t), model.abstract_params(), jnp.zeros((ROWS, LENGTH), jnp.int32))
    assert forward_products(made) == kernels(NAMES) + collections.Counter({(40, 24): 1})


def test_auto_is_no_policy():
    """A block stays as it is; `make_step` refuses such a student."""
    assert keeping("auto")(loss) is loss and keeping("none")(loss) is loss
    assert keeping("full")(loss) is not loss


def test_every_kept_name_is_set_in_a_block(equations):
    """A name that no array has would keep nothing, without an error."""
    model = model_of("none")
    made = equations(lambda p, t: loss(p, model, t), model.abstract_params(), jnp.zeros((ROWS, LENGTH), jnp.int32))
    named = {e.params["name"]: e.invars[0].aval.shape for e in made if e.primitive.name == "name"}
    assert named == {name: (ROWS, LENGTH, width) for name, width in WIDTHS.items()}
    assert {*OFFLOADED}.union(*SAVED.values()) == set(named)
