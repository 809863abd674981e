"""The programs of live streams, compiled for a GPU that is absent: what they need beside pool and parameters."""

import functools
import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

A100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 167936
  threads_per_core_limit: 2048 core_count: 108 fpus_per_core: 64 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 2039040000000 l2_cache_size: 41943040 clock_rate_ghz: 1.41
  device_memory_size: 85100068864 shared_memory_per_block_optin: 166912 registers_per_core_limit: 65536
  registers_per_block_limit: 65536 cuda_compute_capability { major: 8 minor: 0 }
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA A100-SXM4-80GB"
"""
ROWS, PAGES, NEW, ROOM = 16, 32, 256, 256


def test_a_batch_of_long_streams_fits_into_a_gibibyte(root):
    """Qwen3-8B in bfloat16; 16 streams of 4,096 cached tokens and 256 new ones, whose caches are 9 GiB."""
    wheels = os.environ.get("PRISM_AOT")
    if not wheels:
        pytest.skip("PRISM_AOT does not name a folder with XLA's CUDA plugin and libraries, unpacked from their wheels")
    setting = {"PYTHONPATH": f"{root}:{wheels}", "JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
    done = subprocess.run([sys.executable, __file__], env=os.environ | setting, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    needed = json.loads(done.stdout)
    assert set(needed) == {"read", "branch", "write"}
    assert all(temporary < 1 << 30 for temporary, _ in needed.values()), needed
    # Beside logits, only keys and values of new tokens and of room for them: no trunk.
    new = 2 * 36 * ROWS * 8 * 128 * 2
    assert all(result < new * (NEW + ROOM) + (1 << 24) for _, result in needed.values()), needed


def measure():
    """Bytes of temporaries and of results of every program."""
    import jax
    import jax.numpy as jnp
    from jax._src.cudnn import fused_attention_stablehlo
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    from prism_jax.student import Qwen3, constrained, dispatch, sampler
    from prism_jax.student.branches import Row
    from prism_jax.student.kv_cache import Segment, unstack_layers
    from prism_jax.student.live_programs import read_rows
    from prism_jax.student.pages import PAGE, make_pool
    from prism_jax.student.presets import qwen3_8b
    from prism_jax.student.sampling import make_sampling

    dispatch.platform = sampler.platform = lambda: "cuda"
    fused_attention_stablehlo.check_cudnn_version = lambda: 91_000
    fused_attention_stablehlo.check_compute_capability = lambda *_: False
    fused_attention_stablehlo.is_cuda_compute_capability_equal = lambda *_: False
    topology = topologies.get_topology_desc("a100", "cuda", target_config=A100, topology="1x1x1")
    place = SingleDeviceSharding(topology.devices[0])

    def put(tree):
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), tree)

    def array(*shape, dtype=jnp.int32):
        return put(jax.ShapeDtypeStruct(shape, dtype))

    sizes = {}

    def compile_(name, program, *args):
        made = program.trace(*args).lower(lowering_platforms=("cuda",)).compile({"xla_gpu_autotune_level": 0})
        memory = made.memory_analysis()
        sizes[name] = memory.temp_size_in_bytes, memory.output_size_in_bytes
        return put(made.out_info)

    model = Qwen3(qwen3_8b(dtype="bfloat16", param_dtype="bfloat16"))
    params = put(jax.eval_shape(unstack_layers, model.abstract_params()))
    pool = put(jax.eval_shape(lambda: make_pool(model.config, ROWS * PAGES + 1)))
    counts, table, tokens = array(ROWS), array(ROWS, PAGES), array(ROWS, NEW)
    row = Row(*[tokens] * 4, array(ROWS, 8))
    compile_("read", read_rows, model, params, pool, table, counts, row, array(2))
    trunk = Segment(pool, array(ROWS, PAGES * PAGE, dtype=bool), table)
    start = sampler.branch_off(model, params, trunk, tokens, counts, ROOM, functools.partial(compile_, "branch"))
    automaton = constrained.DeviceAutomaton.__new__(constrained.DeviceAutomaton)
    steps = array(4, model.config.vocab_size, dtype=jnp.int8)
    automaton.arrays, automaton.least = (steps, steps, array(model.config.vocab_size)), 1
    spans = [constrained.Span((0,), 1)]
    compile_(
        "write",
        constrained.write_program,
        *constrained._arguments(model, params, start, spans, automaton, put(make_sampling(ROWS))),
    )
    return sizes


if __name__ == "__main__":
    print(json.dumps(measure()))
