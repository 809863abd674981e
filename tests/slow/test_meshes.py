"""Training on a mesh gives the losses of training on one device: eight simulated CPU devices, in several layouts."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow

TINY = (
    "--config=configs/quickstart.py",
    "--config.data.train_streams=32",
    "--config.data.calibration_streams=12",
    "--config.data.test_streams=12",
    "--config.student.hidden_dim=32",
    "--config.student.num_layers=2",
    "--config.student.num_heads=4",
    "--config.student.num_kv_heads=2",
    "--config.student.head_dim=8",
    "--config.student.mlp_dim=48",
    "--config.student.unroll=1",
    "--config.training.steps=5",
    "--config.training.batch=8",
)


def metrics(root, environment, workdir, *mesh, flags=()):
    sizes = [f"--config.mesh.{axis}={size}" for axis, size in zip(("data", "fsdp", "tensor"), mesh, strict=True)]
    # Optimizing the program would take longer than five steps.
    environment = environment | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "True"}
    command = [sys.executable, "-m", "prism_jax.train", *TINY, *sizes, *flags, f"--workdir={workdir}"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "8 x cpu" in done.stdout
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_every_mesh_trains_as_one_device_does(root, eight_devices, tmp_path):
    """Compares the losses of five steps; each depends on the gradients of the steps before it."""
    one = metrics(root, eight_devices(), tmp_path / "one", 1, 1, 1)
    assert one[-1]["loss"] != one[0]["loss"]
    for mesh in ((8, 1, 1), (2, 2, 2), (1, 4, 2)):
        # Microbatches are used on the mesh whose devices hold two rows each.
        flags = ("--config.training.accumulation=2",) if mesh == (2, 2, 2) else ()
        found = metrics(root, eight_devices(), tmp_path / "-".join(map(str, mesh)), *mesh, flags=flags)
        for name in ("loss", "need", "accept", "burden", "response", "gradient_norm"):
            np.testing.assert_allclose(
                [line[name] for line in found], [line[name] for line in one], rtol=2e-5, err_msg=f"{name} on {mesh}"
            )


def test_parameters_in_bfloat16_train_sharded_with_masters_and_factors(root, eight_devices, tmp_path):
    """Rounding depends on the order of sums, so losses agree to the precision of bfloat16."""
    flags = ["--config.student.param_dtype=bfloat16", "--config.training.first_moment=bfloat16"]
    flags += ["--config.training.second_moment=factored", "--config.training.frozen=('layers/0/.*',)"]
    flags += ["--config.training.master=split"]
    one, found = (
        metrics(root, eight_devices(), tmp_path / "-".join(map(str, mesh)), *mesh, flags=flags)
        for mesh in ((1, 1, 1), (1, 4, 2))
    )
    assert one[-1]["loss"] != one[0]["loss"]
    np.testing.assert_allclose([line["loss"] for line in found], [line["loss"] for line in one], rtol=0.02)
