"""Which meshes may span several CPU processes."""

import types

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from prism_jax.student.sharding import MESH_AXES
from prism_jax.training.job import check_processes


def mesh(**sizes):
    shape = [sizes.get(axis, 1) for axis in MESH_AXES]
    return Mesh(np.array([jax.devices("cpu")[0]] * np.prod(shape)).reshape(shape), MESH_AXES)


@pytest.mark.parametrize("axis", ["fsdp", "tensor"])
def test_parameters_are_not_sharded_between_cpu_processes(axis):
    with pytest.raises(ValueError, match=rf"^mesh\.{axis}: found 2 on 2 CPU processes, expected 1: CPU processes can"):
        check_processes(mesh(**{axis: 2}), 2)
    check_processes(mesh(**{axis: 2}), 1)


def test_cpu_processes_can_shard_a_batch():
    check_processes(mesh(data=2), 2)


def test_no_row_is_split_between_processes():
    """Each would load other rows for it, which both would take for the same."""
    gpu = types.SimpleNamespace(platform="gpu")
    gpus = types.SimpleNamespace(shape={"data": 1, "fsdp": 4, "tensor": 2}, devices=np.array([gpu]))
    check_processes(gpus, 4)
    with pytest.raises(ValueError, match=r"^mesh\.tensor: found 2 with data x fsdp = 4 on 8 processes, expected"):
        check_processes(gpus, 8)
