"""What XLA compiles for absent GPUs: the configs of Qwen3, and a matrix of meshes and settings.

`make studies` runs this; it takes about eight minutes on two CPU cores.
"""

import itertools
import json

import pytest
from target_shapes import MATRIX

pytestmark = pytest.mark.study

CELLS = """
import json, sys
sys.path.insert(0, "tests/training/compiled")
from prism_jax.student.sharding import pretend_devices
pretend_devices(8)
from target_shapes import MATRIX, cell
from prism_jax.training.memory import persistent
from prism_jax.training.compiled import accounting, hlo, theory
from prism_jax.training.compiled.absent import compile_step
from prism_jax.training.compiled.cards import card

chip = card("a100-80gb")
for row in MATRIX:
    shape = cell(*row)
    compiled = compile_step(shape, chip, chip.memory)
    program, held = hlo.parse(compiled.as_text()), persistent(shape)
    print(json.dumps({
        "fused": accounting.fused_attention(program).forward,
        "state": held.parameters + held.masters + held.moments,
        "donated": compiled.memory_analysis().alias_size_in_bytes,
        "gathered": sum(one.bytes for one in accounting.collectives(program, 8).values() if one.kind == "all-gather"),
        "zero3": theory.zero3(shape).gathered,
    }), flush=True)
"""

CONFIGS = """
import dataclasses, json, runpy, sys
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.student.sharding import pretend_devices
from prism_jax.training.run_config import MeshConfig, RunConfig
from prism_jax.training.compiled.cards import card
from prism_jax.training.compiled.plan import compile_plan

pretend_devices(8)
limit = int(card("a100-80gb").memory * 0.95)
for name, mesh, remat, training in json.loads(sys.argv[1]):
    config = from_config_dict(RunConfig, runpy.run_path(f"configs/{name}.py")["get_config"]())
    config = dataclasses.replace(
        config,
        mesh=MeshConfig(*mesh),
        student=dataclasses.replace(config.student, remat=remat),
        training=dataclasses.replace(config.training, **training),
    )
    print(json.dumps(compile_plan(config, "a100-80gb", limit).to_dict()), flush=True)
"""


def test_the_matrix_covers_every_pair_of_settings():
    """Each value of a setting meets each value of every other one in some row; there are at most 24 rows."""
    assert len(MATRIX) <= 24
    for left, right in itertools.combinations(range(len(MATRIX[0])), 2):
        values = ({row[place] for row in MATRIX} for place in (left, right))
        assert set(itertools.product(*values)) == {(row[left], row[right]) for row in MATRIX}


def test_every_cell_of_the_matrix_compiles(on_target):
    """Each attends by fused kernels in half precision, updates its state in place, and gathers as ZeRO-3 does."""
    found = on_target(CELLS, flags="--xla_disable_hlo_passes=rematerialization")
    assert len(found) == len(MATRIX)
    for row, step in zip(MATRIX, found, strict=True):
        assert (step["fused"] > 0) == (row[2] != "single"), row
        # A few scalars of the optimizer are copied instead.
        assert step["donated"] >= step["state"] - 128, row
        # A frozen block may still be gathered twice, and small arrays are gathered, too.
        assert step["gathered"] <= 1.25 * step["zero3"] + 2**20, row


@pytest.fixture(scope="module")
def plans(on_target):
    """Plans of the configs of Qwen3, with the settings of the launch scripts."""
    from prism_jax.runs.machine import launch_settings

    def compile_(*cases):
        return on_target(CONFIGS, json.dumps(cases), flags=launch_settings()[0])

    return compile_


def test_the_estimate_errs_upwards_on_every_mesh(plans):
    eight = {"batch": 8}
    cases = [("qwen3_8b_a100", (1, 1, 1), remat, {}) for remat in ("full", "qkv", "attention", "offload")]
    for remat in ("full", "flash", "none"):
        for mesh in ((1, 8, 1), (1, 1, 8), (1, 4, 2), (4, 2, 1), (2, 2, 2)):
            cases.append(("qwen3_8b_a100x8", mesh, remat, {}))
        cases.append(("qwen3_0_6b", (1, 1, 1), remat, {}))
        cases.append(("qwen3_0_6b", (8, 1, 1), remat, eight))
        cases.append(("qwen3_0_6b", (1, 1, 1), remat, {"accumulation": 4}))
    for case, plan in zip(cases, plans(*cases), strict=True):
        assert 1 <= plan["estimated_gib"] / plan["peak_gib"] < 1.1, case


def test_eight_cards_recompute_nothing_and_exchange_what_zero3_needs(plans):
    (plan,) = plans(("qwen3_8b_a100x8", (1, 8, 1), "auto", {}))
    assert plan["fits"] and plan["remat"] == "flash"
    assert plan["dots_tflop"] <= 1.03 * plan["model_tflop"]
    found = {one["kind"]: one["bytes"] for one in plan["collectives"]}
    block = 36 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 12288) * 2
    assert found["all-gather"] <= 1.02 * 2 * block and found["reduce-scatter"] <= 1.02 * block
    assert plan["mfu_bound"] >= 0.6


def test_one_card_recomputes_all_or_keeps_the_gates_on_the_host_where_it_is_told_to(plans):
    chosen, told = plans(*(("qwen3_8b_a100", (1, 1, 1), remat, {}) for remat in ("auto", "offload")))
    assert chosen["fits"] and chosen["remat"] == "full" and chosen["host_gib"] == 0
    assert told["fits"] and told["wire_gb"] == 0 and told["dots_tflop"] <= 1.16 * told["model_tflop"]
    assert told["host_gib"] == pytest.approx(36 * 4 * 4096 * 12288 * 2 / 2**30, rel=1e-3)


def test_qwen3_0_6b_fits_with_every_activation_kept(plans):
    (plan,) = plans(("qwen3_0_6b", (1, 1, 1), "auto", {}))
    assert plan["fits"] and plan["remat"] == "flash" and plan["fused_attention"] == 2 * 2 * 28
