"""Plans the memory that a config needs, on devices that may not be present."""

from __future__ import annotations

from prism_jax.student.sharding import pretend_devices
from prism_jax.training.config import RunConfig
from prism_jax.training.memory.plan import parse_bytes, plan_memory, step_shape


def show_plan(config: RunConfig, device_memory: str) -> None:
    """Prints the memory that one device needs; allocates and writes nothing.

    Args:
      config: Config of the run.
      device_memory: Memory of a device, such as 80GiB; empty uses that of the devices that are present.

    Raises:
      ValueError: if a device has less.
    """
    limit = parse_bytes(device_memory) if device_memory else 0
    pretend_devices(config.mesh.devices)
    shape, sizes = step_shape(config)
    found = plan_memory(shape, limit)
    for name, fact in {"row sizes": f"from {sizes}", **found.lines()}.items():
        print(f"{name:12} {fact}")
    found.check()
