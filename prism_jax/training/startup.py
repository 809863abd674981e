"""The part of the start-up report that describes the devices and their memory."""

from __future__ import annotations

from collections import Counter

import jax

from prism_jax.training.loop import Job
from prism_jax.training.memory.plan import gib, plan_memory


def startup(job: Job) -> dict[str, str]:
    """Reports mesh, attention path, remat policy, parameters by dtype, and predicted and compiled memory per device.

    The step is compiled here only if there is a compilation cache, because the first step can then reuse the program.

    Raises:
      ValueError: if a step needs more memory than a device has.
    """
    student = job.slots.model.config
    kinds: Counter[str] = Counter()
    for leaf in jax.tree.leaves(job.slots.model.abstract_params()):
        kinds[leaf.dtype.name] += leaf.size
    plan = plan_memory(job.shape, compiled=bool(jax.config.values["jax_compilation_cache_dir"]))
    plan.check()
    predicted = sum(plan.persistent) + plan.working.peak
    compiled = "not yet" if plan.compiled is None else gib(sum(plan.persistent) + plan.compiled)
    sizes = " x ".join(f"{name} {size}" for name, size in job.mesh.shape.items())
    return {
        "mesh": f"{sizes}, {jax.process_count()} process{'es' * (jax.process_count() > 1)}",
        "attention": plan.attention,
        "remat": plan.remat,
        "dtypes": ", ".join(f"{count:,} parameters in {name}" for name, count in kinds.items())
        + f", computing in {student.dtype}",
        "memory": f"per device: {gib(predicted)} predicted, {compiled} compiled, "
        f"{gib(plan.limit) if plan.limit else 'unknown'} available",
    }
