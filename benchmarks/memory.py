"""Compares the plan's memory estimate with XLA's compiler for an NVIDIA A100, on a machine without a GPU.

    pip install --no-deps --target DIR jax-cuda12-pjrt==0.10.2 jax-cuda12-plugin==0.10.2
    PYTHONPATH=DIR python benchmarks/memory.py --config=configs/qwen3_8b_a100.py

The compiler gets a description of the card instead of the card. Nothing is tuned or run, and cuDNN's own workspace for
an attention call is not included. It takes about a minute. JAX warns that it finds no CUDA, which is expected.
"""

from __future__ import annotations

import dataclasses
import pathlib

import jax
import numpy as np
from absl import flags
from jax._src.cudnn import fused_attention_stablehlo as fused  # its checks of the GPU are replaced below
from jax._src.lib import xla_client
from jax.sharding import AxisType, Mesh
from ml_collections import config_flags

from prism_jax.runtime import command
from prism_jax.runtime.config import from_config_dict
from prism_jax.student import dispatch, sharding
from prism_jax.training.config import RunConfig
from prism_jax.training.memory.estimate import estimate
from prism_jax.training.memory.plan import abstract_batch, gib, persistent, step_shape
from prism_jax.training.optimization.step import abstract_state, make_step

# NVIDIA A100 80GB SXM, as CUDA describes it.
A100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 167936
  threads_per_core_limit: 2048 core_count: 108 fpus_per_core: 64 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 2039000000000 l2_cache_size: 41943040 clock_rate_ghz: 1.41
  device_memory_size: 84987740160 shared_memory_per_block_optin: 166912 registers_per_core_limit: 65536
  registers_per_block_limit: 65536 cuda_compute_capability { major: 8 minor: 0 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA A100-SXM4-80GB"
"""


def devices(count: int) -> np.ndarray:
    """Descriptions of `count` cards to compile for."""
    import jax_plugins.xla_cuda12 as plugin

    if not xla_client.pjrt_plugin_loaded("cuda"):
        library = pathlib.Path(plugin.__file__).parent / "xla_cuda_plugin.so"
        xla_client.load_pjrt_plugin_dynamically("cuda", str(library))
    if not xla_client.pjrt_plugin_initialized("cuda"):
        xla_client.initialize_pjrt_plugin("cuda")
    options = {"target_config": A100, "topology": f"1x1x{count}"}
    topology = xla_client._xla.get_default_c_api_topology("cuda", "", options)
    return np.array(topology._make_compile_only_devices())


def define_flags() -> None:
    """Defines the command-line flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides.")
    flags.mark_flag_as_required("config")


def main() -> None:
    """Prints the estimated and the compiled memory of the config's training step."""
    config = from_config_dict(RunConfig, flags.FLAGS.config)
    axes = (config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    sharding.pretend_devices(int(np.prod(axes)))
    shape, source = step_shape(config)
    mesh = Mesh(devices(int(np.prod(axes))).reshape(axes), sharding.MESH_AXES, axis_types=(AxisType.Auto,) * 3)
    shape = dataclasses.replace(shape, mesh=mesh)
    student = shape.slots.model.config
    path = dispatch.chosen_path(student.attention, student.dtype, student.head_dim, "cuda")
    dispatch.platform = lambda: "cuda"
    fused.check_cudnn_version = lambda: 90800
    fused.check_compute_capability = lambda *_: False
    fused.is_cuda_compute_capability_equal = lambda *_: False

    held, estimated = sum(persistent(shape)), estimate(shape, path).peak
    step = make_step(shape.slots, shape.training, shape.loss, shape.point, mesh)
    state = abstract_state(shape.slots.model, shape.training, mesh)
    lowered = step.trace(state, abstract_batch(shape)).lower(lowering_platforms=("cuda",))
    found = lowered.compile({"xla_gpu_autotune_level": 0}).memory_analysis()
    compiled = found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    print(f"row sizes   from {source}; attention {path}; jax {jax.__version__}")
    print(f"persistent  {gib(held)}")
    print(f"in a step   {gib(estimated)} estimated, {gib(compiled)} by XLA:cuda's compiler")
    print(f"total       {gib(held + estimated)} estimated, {gib(held + compiled)} by XLA:cuda's compiler")


if __name__ == "__main__":
    define_flags()
    command.start(main)
