"""Shardings of parameters, and results on several meshes."""

import dataclasses
import json
import math
import re

import jax
import jax.numpy as jnp
import pytest
from full_pass import QUICK
from jax.sharding import PartitionSpec as P
from student_sizes import grouped

from prism_jax.student.attention import no_branches
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.sharding import BATCH, MESH_AXES, RULES, make_mesh, partition_spec, path_of, shardings

CONFIG = grouped(vocab_size=64, hidden_dim=32, num_layers=2, mlp_dim=48, tied=False)

# How each parameter is sharded; the leading axis of stacked layers is never split.
SPECS = {
    "embedding": P("tensor", "fsdp"),
    "final_norm/weight": P(None),
    "head/kernel": P("fsdp", "tensor"),
    "layers/attention/k_norm/weight": P(None, None),
    "layers/attention/k_proj/kernel": P(None, "fsdp", "tensor"),
    "layers/attention/o_proj/kernel": P(None, "tensor", "fsdp"),
    "layers/attention/q_norm/weight": P(None, None),
    "layers/attention/q_proj/kernel": P(None, "fsdp", "tensor"),
    "layers/attention/v_proj/kernel": P(None, "fsdp", "tensor"),
    "layers/input_norm/weight": P(None, None),
    "layers/mlp/down_proj/kernel": P(None, "tensor", "fsdp"),
    "layers/mlp/gate_proj/kernel": P(None, "fsdp", "tensor"),
    "layers/mlp/up_proj/kernel": P(None, "fsdp", "tensor"),
    "layers/post_norm/weight": P(None, None),
}


def specs(tree):
    found = jax.tree_util.tree_leaves_with_path(shardings(tree, make_mesh()))
    return {path_of(path): sharding.spec for path, sharding in found}


def test_every_parameter_has_the_spec_it_should():
    assert specs(Qwen3(CONFIG).abstract_params()) == SPECS


def test_a_tied_or_llama_shaped_model_has_fewer_parameters_and_no_other_specs():
    small = StudentConfig(vocab_size=64, qk_norm=False)
    absent = {name for name in SPECS if name.startswith("head") or ("_norm/weight" in name and "attention" in name)}
    assert specs(Qwen3(small).abstract_params()) == {k: v for k, v in SPECS.items() if k not in absent}


@pytest.mark.parametrize(("path", "ndim"), [("layers/attention/q_proj/bias", 2), ("embedding", 1), ("my_embedding", 2)])
def test_unknown_parameters_are_errors(path, ndim):
    with pytest.raises(ValueError, match=rf"^sharding: found parameter '{path}' with {ndim} axes, expected one that"):
        partition_spec(path, ndim)


def test_rules_name_axes_of_the_mesh():
    assert {axis for axis in RULES.values() if axis} | {axis for axes in BATCH for axis in axes} == set(MESH_AXES)
    assert make_mesh().axis_names == MESH_AXES


def test_too_few_devices_is_an_error_that_counts_them():
    found = jax.device_count()
    with pytest.raises(ValueError) as error:
        make_mesh(data=found, fsdp=2, tensor=3)
    assert str(error.value) == (
        f"mesh: found {found} devices, expected at least {6 * found} (data {found} x fsdp 2 x tensor 3)"
    )


@pytest.mark.slow
def test_the_compiled_training_step_makes_no_logits_of_the_whole_batch():
    """The compiled step has no buffer of [batch, length, vocabulary], flat or not; the check finds one in a plain loss.

    No other axis has the size of the vocabulary, and only one chunk of response logits may exist at a time.
    """
    from prism_jax.decision.operating_point import OperatingPoint
    from prism_jax.student.prompting.packing import Sizes, empty_row
    from prism_jax.student.scoring.slots import Slots
    from prism_jax.training.loss_config import LossConfig
    from prism_jax.training.optimization.objective import Objective
    from prism_jax.training.optimization.step import StepShape, make_step
    from prism_jax.training.run_config import TrainingConfig

    rows, trunk, branches, responses, vocabulary, chunk = 4, 24, 32, 48, 331, 16
    model = Qwen3(dataclasses.replace(CONFIG, vocab_size=vocabulary))
    objective = Objective(Slots(model, 1, 2, 8), LossConfig(response_chunk=chunk), OperatingPoint())
    row = empty_row(Sizes(trunk, branches, 8, 3, 3, responses))
    shape = StepShape(objective, TrainingConfig(batch=rows), row, make_mesh())

    def largest(compiled):
        """Size, per entry of the vocabulary, of the largest array with that axis, except for arrays like parameters."""
        text = compiled.as_text()
        shapes = {tuple(map(int, found.split(","))) for found in re.findall(r"[a-z]+\d+\[([\d,]+)\]", text)}
        return max(math.prod(s) for s in shapes if vocabulary in s and CONFIG.hidden_dim not in s) // vocabulary

    assert largest(make_step(shape).lower(shape.state, shape.batch).compile(QUICK)) == chunk

    def plainly(params, tokens):
        hidden = model.hidden(params, tokens, tokens, no_branches(*tokens.shape))
        return jnp.mean(jax.nn.logsumexp(model.logits(params, hidden), axis=-1))

    plain = jax.jit(jax.grad(plainly)).lower(shape.state.params, shape.batch.trunk).compile(QUICK)
    assert largest(plain) == rows * trunk


ON_MESHES = """
import dataclasses, json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Tree
from prism_jax.student.heads import token_cross_entropy
from prism_jax.student.sharding import BATCH, make_mesh, shardings

model = Qwen3(StudentConfig(**json.loads(sys.argv[1])))
rng = np.random.default_rng(0)
params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32) / 4, model.abstract_params())
rows, trunk, branches, window = 8, 6, 8, 4
ids = lambda length: rng.integers(64, size=(rows, length)).astype(np.int32)
column = lambda values: np.tile(np.array(values, np.int32), (rows, 1))
batch = [ids(trunk), ids(branches), column([5, 6, 7, 7, 6, 7, 8, 0]), column([5] * 4 + [6] * 3 + [0])]
batch += [column([1] * 4 + [2] * 3 + [0]), column([0, 0, 1, 2, 0, 0, 0, 0])]

def loss(params, batch):
    hidden = model.branch_hidden(params, Tree(*batch), window)
    flat, targets = hidden.reshape(-1, hidden.shape[-1]), batch[1].ravel()
    total, _ = token_cross_entropy(model.head(params), flat, targets, jnp.arange(flat.shape[0]) % 3 / 2, chunk=4)
    return total / flat.shape[0] + jnp.mean(jnp.tanh(model.logits(params, hidden)) * jnp.arange(64) / 64), hidden

def run(*sizes):
    mesh = make_mesh(*sizes)
    where, rows_where = shardings(params, mesh), NamedSharding(mesh, BATCH)
    def on_mesh(params, batch):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return jax.value_and_grad(loss, has_aux=True)(params, batch)

    step = jax.jit(on_mesh, in_shardings=(where, rows_where),
                   out_shardings=((None, rows_where), where))
    placed = jax.device_put(params, where)
    (value, hidden), gradients = step(placed, jax.device_put(batch, rows_where))
    share = max(leaf.addressable_shards[0].data.size / leaf.size for leaf in jax.tree.leaves(placed) if leaf.ndim == 3)
    return {"value": value, "hidden": hidden, "gradients": gradients}, share

want, _ = run(1, 1, 1)
report = {}
for sizes in json.loads(sys.argv[2]):
    got, share = run(*sizes)
    worst = {name: max(float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())
             for a, b in zip(jax.tree.leaves(got[name]), jax.tree.leaves(want[name]))) for name in want}
    report[str(sizes)] = {"share": share, **worst}
print(json.dumps({"devices": jax.device_count(), "value": float(want["value"]), "report": report}))
"""


@pytest.mark.slow
def test_every_mesh_computes_what_one_device_does(on_eight_devices):
    """Forward pass and gradients on eight simulated devices agree up to rounding, relative to the largest entry."""
    meshes = [[2, 2, 2], [1, 8, 1], [1, 2, 4]]
    sizes = dataclasses.asdict(dataclasses.replace(CONFIG, tied=True))
    flags = "--xla_backend_optimization_level=0"
    found = json.loads(on_eight_devices(ON_MESHES, json.dumps(sizes), json.dumps(meshes), flags=flags))
    assert found["devices"] == 8 and abs(found["value"]) > 1e-3
    for mesh in meshes:
        errors = found["report"][str(mesh)]
        # Matrices are split over fsdp and tensor; data replicates them.
        assert errors.pop("share") == 1 / (mesh[1] * mesh[2])
        assert max(errors.values()) < 1e-5, (mesh, errors)
