"""Placement of weights on eight simulated devices, and the host memory that loading and saving use."""

import io
import json
import tracemalloc
from typing import ClassVar

import jax
import pytest
from gguf_models import write_gguf
from hf_models import libraries
from student_sizes import grouped
from tqdm import tqdm

from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import load_hf, placing, save_hf

# Llama-shaped, so that a GGUF file holds rows in another order.
MODEL = Qwen3(grouped(vocab_size=64, hidden_dim=32, num_heads=8, num_kv_heads=4, tied=False, qk_norm=False))

ON_MESHES = """
import json, pathlib, sys
import jax, numpy as np
from prism_jax.student.sharding import make_mesh, shardings
from prism_jax.student.weights import load_gguf, load_hf, save_hf
from prism_jax.student.weights.safetensors_in import SafetensorsDirectory

folder, out = map(pathlib.Path, sys.argv[1:3])
read, SafetensorsDirectory.read = SafetensorsDirectory.read, lambda *args: count(read(*args))
elements = 0

def count(part):
    global elements
    elements += part.size
    return part

want = load_hf(folder, "float32")
ids = np.random.default_rng(0).integers(64, size=(8, 9))
logits = np.asarray(want.logits(ids))
report = []
for sizes in json.loads(sys.argv[3]):
    elements, mesh = 0, make_mesh(*sizes)
    got = load_hf(folder, "float32", mesh=mesh)
    read_elements = elements
    from_gguf = load_gguf(sys.argv[4], "float32", mesh=mesh)
    place = jax.tree.leaves(shardings(got.params, mesh))
    leaves = [jax.tree.leaves(model.params) for model in (got, want, from_gguf)]
    target = out / "x".join(map(str, sizes))
    save_hf(target, got.model, got.params)
    report.append({
        "elements": read_elements,
        "placed": all(a.sharding == b and c.sharding == b for a, c, b in zip(leaves[0], leaves[2], place)),
        "same": all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(leaves[0], leaves[1])),
        "same_gguf": all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(leaves[2], leaves[1])),
        "off": float(np.abs(np.asarray(got.logits(ids)) - logits).max()),
        "written": (target / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes(),
        "share": max(leaf.addressable_shards[0].data.size / leaf.size for leaf in leaves[0] if leaf.ndim == 3),
    })
print(json.dumps({"devices": jax.device_count(), "spread": float(logits.std()), "report": report}))
"""


@pytest.mark.slow
def test_sharded_reading_equals_unsharded_and_reads_each_number_once(draw_params, on_eight_devices, tmp_path):
    params = draw_params(MODEL)
    save_hf(tmp_path / "model", MODEL, params)
    _, transformers = libraries()
    gguf = write_gguf(tmp_path / "model.gguf", transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model"))
    meshes = [[2, 2, 2], [1, 1, 4]]
    # Compiling takes most of the time in these tests, so the compiler optimises little.
    flags = "--xla_backend_optimization_level=0"
    found = json.loads(on_eight_devices(ON_MESHES, tmp_path / "model", tmp_path, json.dumps(meshes), gguf, flags=flags))
    assert found["devices"] == 8 and found["spread"] > 0.5
    matrices = sum(leaf.size for leaf in jax.tree.leaves(params))
    for (_, fsdp, tensor), row in zip(meshes, found["report"], strict=True):
        assert row["placed"] and row["same"] and row["same_gguf"] and row["written"]
        assert row["share"] == 1 / (fsdp * tensor)
        assert row["elements"] == matrices  # a piece that several devices hold is read once
        assert row["off"] < 1e-5


@pytest.fixture(scope="module")
def many_layers(draw_params):
    """A model of 10 MB whose largest parameter is a fifth of all weights."""
    model = Qwen3(grouped(vocab_size=512, hidden_dim=128, num_layers=12, num_kv_heads=4, head_dim=32, mlp_dim=256))
    return model, jax.device_get(draw_params(model))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_host_never_holds_two_copies(dtype, many_layers, tmp_path):
    """NumPy and the reader hold at most about one model at a time; on CPU that is the loaded model itself."""
    model, params = many_layers
    save_hf(tmp_path, model, params)
    load_hf(tmp_path, dtype)  # imports and compiles first
    tracemalloc.start()
    loaded = load_hf(tmp_path, dtype)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sizes = [leaf.nbytes for leaf in jax.tree.leaves(loaded.params)]
    assert max(sizes) < 0.25 * sum(sizes)
    assert max(sizes) < peak < 1.25 * sum(sizes)


def test_writing_holds_one_shard_at_a_time(many_layers, tmp_path):
    model, params = many_layers
    most = 10**6
    save_hf(tmp_path / "warm", model, params, max_shard_bytes=most)
    tracemalloc.start()
    save_hf(tmp_path / "model", model, params, max_shard_bytes=most)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    total = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    assert total > 6 * most
    assert most / 2 < peak < 3 * most


class Bar(tqdm):
    """A progress bar that is always on and records its options."""

    made: ClassVar = []

    def __init__(self, **options):
        super().__init__(**options | {"disable": False, "file": io.StringIO()})
        self.made.append((self, options))


def test_progress_counts_bytes_and_ends_full(many_layers, tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "tqdm", Bar)
    model, params = many_layers
    save_hf(tmp_path, model, params)
    load_hf(tmp_path, "bfloat16")
    ((bar, options),) = Bar.made
    assert bar.total == bar.n == sum(leaf.size * 2 for leaf in jax.tree.leaves(params))
    assert options["disable"] is None  # tqdm then shows it only on a terminal
