"""`python -m prism_jax train --plan --target`: what it prints and writes, and its errors."""

import json
import subprocess
import sys

import forked
import pytest

CONFIG = "--config=configs/qwen3_8b_a100x8.py"


def plan(*flags, **late):
    return forked.run("prism_jax.train", CONFIG, "--plan", *flags, late=late)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--target=l4"], "target: found 'l4', which is not available: XLA has no description of this card"),
        (["--target=h100", "--devices=4"], "devices: found 4, expected the mesh's 8 (data 1 x fsdp 8 x tensor 1)"),
        (["--target=h1000"], "target: found 'h1000', expected one of a100-40gb, a100-80gb, h100, h200"),
        (["--plan_out=plan.json"], "plan_out: found plan.json without --target, expected the GPU to compile for"),
        (["--target=h100", "--plan_out=/no/such/folder/plan.json"], "/no/such/folder"),
    ],
)
def test_contradictions_end_in_one_line(flags, error):
    done = plan(*flags)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and error in last


@pytest.mark.parametrize("flag", ["--target=h100", "--plan_out=plan.json"])
def test_a_training_refuses_the_flags_of_a_plan(flag, tmp_path):
    done = forked.run("prism_jax.train", CONFIG, flag, f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 1
    assert f"error: {flag.partition('=')[0]}: found it without --plan, expected it" == done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_without_a_compiler_the_estimate_says_so(tmp_path):
    done = plan("--target=a100-80gb", PRISM_AOT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("no compiler for NVIDIA GPUs is installed in /")
    assert first.endswith("(launch/compiler.sh installs it): estimated from shapes alone")
    assert any(line.startswith("remat        flash") for line in rest)
    assert "of 75.29 GiB per device, by the estimate: such a device is not present" in rest[-1]


@pytest.mark.slow
def test_without_a_compiler_no_file_is_written(tmp_path):
    done = plan("--target=h200", f"--plan_out={tmp_path / 'plan.json'}", PRISM_AOT=str(tmp_path))
    assert done.returncode == 1
    assert f"plan_out: found no compiler for h200 in {tmp_path}, expected launch" in done.stderr
    assert not (tmp_path / "plan.json").exists()


SMALL = (
    "--config.student.num_layers=2",
    "--config.student.vocab_size=4096",
    "--config.packing.context=512",
    "--config.training.start=missing",
)


@pytest.mark.slow
@pytest.mark.usefixtures("on_target")
def test_the_plan_is_printed_and_written(root, tmp_path):
    """Eight devices and two blocks of Qwen3-8B: it fits a card, and not a gibibyte."""
    command = [
        sys.executable,
        "-m",
        "prism_jax",
        "train",
        CONFIG,
        *SMALL,
        "--plan",
        "--target=a100-40gb",
        "--devices=8",
    ]
    fits = subprocess.run([*command, f"--plan_out={tmp_path / 'plan.json'}"], cwd=root, capture_output=True, text=True)
    assert fits.returncode == 0, fits.stderr
    written = json.loads((tmp_path / "plan.json").read_text())
    expected = (
        "target devices peak_gib temp_gib limit_gib fits dots_tflop model_tflop wire_gb collectives fused_attention"
    )
    assert {*expected.split(), "mfu_bound", "updates_per_hour", "jax_version"} <= set(written)
    assert (written["target"], written["devices"], written["fits"]) == ("a100-40gb", 8, True)
    assert written["fused_attention"] == 2 * 2 * 2  # trunk and branches, forward and backward, in two blocks
    assert written["dots_tflop"] == pytest.approx(written["model_tflop"], rel=0.01)
    assert {one["kind"] for one in written["collectives"]} >= {"all-gather", "reduce-scatter"}
    assert f"{written['peak_gib']:.2f} GiB of 37.45 GiB per device" in fits.stdout
    tight = subprocess.run([*command, "--device_memory=1GiB"], cwd=root, capture_output=True, text=True)
    assert tight.returncode == 1
    assert "remat              full" in tight.stdout
    assert "error: plan: found" in tight.stderr and "expected at most 1.00 GiB" in tight.stderr
