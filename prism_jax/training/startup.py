"""What a run says of its devices and their memory before its first step."""

from __future__ import annotations

from collections import Counter

import jax

from prism_jax.student.dispatch import chosen_path, platform
from prism_jax.training.loop import Job
from prism_jax.training.memory.plan import gib, plan_memory, shape_of


def startup(job: Job) -> dict[str, str]:
    """Mesh, attention path, parameters by dtype, and the memory of a device, predicted and compiled.

    The compiler is asked only where compiled programs are kept: the first step then finds its program there.

    Raises:
      ValueError: when a step holds more than a device has.
    """
    student = job.slots.model.config
    kinds: Counter[str] = Counter()
    for leaf in jax.tree.leaves(job.slots.model.abstract_params()):
        kinds[leaf.dtype.name] += leaf.size
    found = plan_memory(shape_of(job), compiled=bool(jax.config.values["jax_compilation_cache_dir"]))
    found.check()
    predicted = sum(found.persistent) + found.working.peak
    compiled = "not asked" if found.compiled is None else gib(sum(found.persistent) + found.compiled)
    sizes = " x ".join(f"{name} {size}" for name, size in job.mesh.shape.items())
    return {
        "mesh": f"{sizes}, {jax.process_count()} process{'es' * (jax.process_count() > 1)}",
        "attention": chosen_path(student.attention, student.dtype, student.head_dim, platform()),
        "dtypes": ", ".join(f"{count:,} parameters in {name}" for name, count in kinds.items())
        + f", computing in {student.dtype}",
        "memory": f"a device: {gib(predicted)} predicted, {compiled} compiled, "
        f"{gib(found.limit) if found.limit else 'unknown'} there",
    }
