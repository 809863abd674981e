"""The launch scripts parse and print what they would run; the machine check names each problem in one line."""

import contextlib
import inspect
import io
import os
import pathlib
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time

import forked
import pytest

from prism_jax.runs import machine
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.training.compiled import absent
from prism_jax.training.run_config import RunConfig

SCRIPTS = ("a100.sh", "node.sh", "slurm.sh")


def launch(root, script, flags, **variables):
    environment = os.environ | {"DRY_RUN": "1", "PYTHON": "python", "SLURM_SUBMIT_DIR": str(root)} | variables
    return subprocess.run(
        ["bash", root / "launch" / script, *flags], env=environment, capture_output=True, text=True, cwd="/"
    )


def dry_run(root, script, flags=("--config=configs/quickstart.py", "--workdir=runs/a b")):
    done = launch(root, script, flags)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("script", (*SCRIPTS, "common.sh", "compiler.sh", "measure.sh", "python.sh"))
def test_bash_reads_the_script(root, script):
    done = subprocess.run(["bash", "-n", root / "launch" / script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_machine_is_checked_before_training_with_the_same_flags(root, script):
    check, train, *_ = dry_run(root, script)
    assert "-m prism_jax train --check" in check and "-m prism_jax train" in train and "--check" not in train
    assert ("srun" in train) == ("--distributed" in train) == (script == "slurm.sh")
    for line in (check, train):
        assert "--config=configs/quickstart.py" in line and r"--workdir=runs/a\ b" in line


def test_what_a_gpu_must_show_is_measured_in_parts_with_limits(root):
    """The same config and card go to every step; each part ends by itself, and what is worth most comes first."""
    flags = ("--config=configs/qwen3_8b_a100x8.py", "--target=a100-80gb")
    parts = [line.split() for line in launch(root, "measure.sh", flags).stdout.splitlines()]
    parts = [part[5:] for part in parts if part[:3] == ["timeout", "--foreground", "--kill-after=5"]]
    assert [part[0].removeprefix("benchmarks/") for part in parts] == [
        *("accelerator.py", "accelerator.py", "step.py", "accelerator.py", "score.py", "step.py", "step.py")
    ]
    steps = [part[1:] for part in parts if part[0].endswith("step.py")]
    assert steps == [[*flags], *([*flags, f"--config.student.remat={name}"] for name in ("full", "qkv"))]
    assert "--config=configs/qwen3_8b_a100.py" in launch(root, "measure.sh", ()).stdout


def test_the_line_of_the_page_has_a_mesh_of_all_devices_and_reads_what_was_curated(root):
    page = (root / "docs" / "distillation.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^sbatch --wait launch/slurm.sh ((?:.+\\\n)*.+)", page, re.MULTILINE)
    flags = shlex.split(line.replace("\\\n", ""))
    check, train, _ = map(shlex.split, dry_run(root, "slurm.sh", flags))
    assert check[-len(flags) :] == train[-len(flags) :] == flags
    given = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    config = runpy.run_path(str(root / given.pop("config")))["get_config"]()
    values = {name: int(value) if value.isdigit() else value for name, value in given.items()}
    config.update_from_flattened_dict(values, strip_prefix="config.")
    run = from_config_dict(RunConfig, config)
    assert f"--devices={run.mesh.devices}" in check and run.training.batch % run.mesh.devices == 0
    assert f"--out={run.data.train_source}\n" in page and run.pathway.filter == "off"


def test_slurm_evaluates_in_one_process_after_training(root):
    assert dry_run(root, "slurm.sh")[2].split()[:4] == ["python", "-m", "prism_jax", "evaluate"]


@pytest.mark.parametrize(
    "flags", [("--workdir", "runs/a b"), ("-workdir=runs/a b",), ("--workdir=other", "--workdir", "runs/a b")]
)
def test_slurm_evaluates_however_the_workdir_is_given(root, flags):
    evaluate = dry_run(root, "slurm.sh", ("--config=configs/quickstart.py", *flags))[2]
    assert evaluate.split(maxsplit=4)[4].strip() == r"--workdir=runs/a\ b"


def test_slurm_leaves_the_texts_out_of_the_report_where_training_would(root):
    evaluate = dry_run(root, "slurm.sh", ("--workdir=a", "--texts", "--notexts", "--config.data.without_domain=b"))[2]
    assert evaluate.split()[4:] == ["--workdir=a", "--texts", "--notexts"]


def test_slurm_evaluates_nothing_inside_an_environment_variable(root, tmp_path):
    nodes = f"PATH[$(touch {tmp_path / 'touched'})]"
    done = launch(root, "slurm.sh", ("--workdir=runs/a",), SLURM_JOB_NUM_NODES=nodes)
    assert not (tmp_path / "touched").exists()
    assert done.returncode == 1
    assert done.stderr == f"error: SLURM_JOB_NUM_NODES: found '{nodes}', expected a whole number\n"


@pytest.mark.parametrize(("status", "called"), [(75, ["requeue 7"]), (1, []), (0, [])])
def test_slurm_requeues_a_run_that_the_end_of_its_time_interrupted(root, tmp_path, status, called):
    """Other errors end the job with their own status."""
    log, environment = tmp_path / "log", tmp_path / "environment"
    programs = {
        "srun": f'env > "{environment}"; case "$*" in *--check*) ;; *) exit {status} ;; esac',
        "scontrol": f'echo "$*" >> "{log}"',
        "python": "true",
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = launch(root, "slurm.sh", ("--workdir=a",), DRY_RUN="", SLURM_JOB_ID="7", PATH=path)
    assert (log.read_text().splitlines() if log.exists() else []) == called
    assert done.returncode == (1 if status == 1 else 0), done.stderr
    # All GPUs of a node, which JAX would divide among as many processes, and all processors, as the job has them.
    told = environment.read_text().splitlines()
    assert {"JAX_LOCAL_DEVICE_IDS=0,1,2,3,4,5,6,7", "SRUN_CPUS_PER_TASK=32"} <= {*told}


@pytest.mark.parametrize(
    ("words", "commands", "number"), [(("ray.sh", "model"), 2, signal.SIGTERM), (("measure.sh",), 1, signal.SIGINT)]
)
def test_what_a_script_runs_ends_with_it(root, tmp_path, words, commands, number):
    """Ctrl-C reaches the whole group of processes, and SIGTERM the script alone."""
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(
        f'#!/usr/bin/env bash\ncase $* in -c*|*ray.scripts*) ;; *) echo $$ >> "{log}"; exec sleep 60 ;; esac'
    )
    python.chmod(0o755)
    script = subprocess.Popen(
        # which may be ignored where the tests run in the background
        ["env", "--default-signal=INT", "bash", root / "launch" / words[0], *words[1:]],
        env=os.environ | {"PYTHON": str(python)},
        start_new_session=True,
    )
    end = time.monotonic() + 20
    while time.monotonic() < end and (not log.exists() or log.read_text().count("\n") < commands):
        time.sleep(0.02)
    (os.killpg if number == signal.SIGINT else os.kill)(script.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        script.wait(20)
    begun = [int(line) for line in log.read_text().split()]
    left = [one for one in begun if pathlib.Path(f"/proc/{one}").exists()]
    for one in left:
        os.kill(one, signal.SIGKILL)
    assert len(begun) == commands and not left


def test_every_flag_of_xla_has_its_comment(root):
    lines = (root / "launch" / "common.sh").read_text().splitlines()
    for number, line in enumerate(lines):
        if "--xla" in line or "XLA_PYTHON" in line:
            assert any(above.startswith("#") for above in lines[max(0, number - 2) : number]), line


@pytest.mark.parametrize(
    ("own", "folder"), [("{}.{}".format(*sys.version_info), ".venv"), ("3.0", ".venv-{}.{}".format(*sys.version_info))]
)
def test_another_python_has_its_environment_beside_that_of_the_first(root, tmp_path, own, folder):
    for name in ("Makefile", "setup.py", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    (tmp_path / ".venv" / "lib" / f"python{own}").mkdir(parents=True)
    for wanted, flags in ((folder, [f"PYTHON={sys.executable}"]), (".venv", [])):
        outer = ("PYTHON", "VENV", "MAKEFLAGS")  # of the `make test` that may run this
        environment = {name: value for name, value in os.environ.items() if name not in outer}
        command = ["make", "-n", "lint", *flags]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert f"{wanted}/bin/ruff check ." in done.stdout.splitlines(), done.stderr


def test_without_a_newer_python_or_a_way_to_make_one_its_tests_are_skipped_with_a_reason(root, tmp_path):
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = launch(root, "python.sh", (), PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(
        r"python.sh: skipped: found no python3.13 that runs, and (user \d+, e|no debootstrap).+\n", done.stderr
    )


def test_the_check_names_each_problem_in_a_line(tmp_path):
    """The test runs on a machine without GPUs, and requests eight and more disk space than exists."""
    flags = ("--devices=8", "--disk=1000000000GiB", f"--workdir={tmp_path}", "--config=configs/quickstart.py")
    done = forked.run("prism_jax.train", "--check", *flags, late={"PATH": ""})
    assert done.returncode == 1
    driver, devices, disk, last = done.stderr.splitlines()[-4:]
    assert driver.startswith("driver: nvidia-smi could not run") and "expected NVIDIA's driver" in driver
    assert devices.startswith("jax: found cpu devices, expected gpu; install")
    assert disk.startswith("disk: found ") and f"free at {tmp_path}, expected 1000000000GiB" in disk
    assert last == "error: check: found 3 problems, expected none"


def test_the_check_needs_neither_config_nor_workdir_and_is_no_plan():
    passed = forked.run("prism_jax.train", "--check", "--platform=cpu")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert passed.stdout == "check: 1 x cpu, all checks passed\n"
    refused = forked.run("prism_jax.train", "--check", "--plan", "--config=configs/quickstart.py")
    assert refused.returncode == 1
    assert "--plan: found it with --check, expected one of them" in refused.stderr


def test_a_gpu_in_use_or_with_an_old_driver_is_named():
    found = list(machine.check_gpus(["0, 550.54, 3", "1, 470.1, 20000"], "cuda12"))
    assert [line.split(":")[0] for line in found] == ["driver", "gpu 1"]
    assert found[0] == "driver: found 470.1, expected at least 525, the oldest for CUDA 12; update it"
    assert "20,000 MiB in use" in found[1]
    (line,) = machine.check_gpus(["0, 550.54, 3", "1, 580.65.06, 3"], "cuda13")
    assert "550.54, expected at least 580, the oldest for CUDA 13; update it, or install 'prism_jax[cuda12]'" in line


@pytest.mark.parametrize(
    ("drivers", "extra"),
    [(["580.65.06"], "cuda13"), (["590.1", "570.2"], "cuda12"), (["470.1"], "cuda12"), ([], "cuda12")],
)
def test_the_extra_that_fits_the_driver_is_named(drivers, extra):
    lines = [f"{index}, {driver}, 3" for index, driver in enumerate(drivers)]
    assert machine.fitting_extra(lines) == extra
    (line,) = machine.check_devices(1, "gpu", "", machine.fitting_extra(lines))
    assert f"expected gpu; install 'prism_jax[{extra}]' and unset JAX_PLATFORMS" in line


def test_a_compiler_ends_where_who_asked_it_was_killed(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(absent, "has_compiler", lambda: True)
    monkeypatch.setattr(machine, "_end_with", asked.append)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"config": 1, "parent": 7}'))
    machine.answer()
    assert asked == [7] and "refused" in capsys.readouterr().out
    monkeypatch.undo()
    child = f"import os, sys, time\n{inspect.getsource(machine._end_with)}\n_end_with(int(sys.argv[1]))"
    parent = (
        "import os, subprocess, sys; me = os.getpid(); "
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], str(me)]); os.kill(me, 9)"
    )
    command = [sys.executable, "-c", parent, child]
    subprocess.run(command, stdout=subprocess.PIPE, timeout=20)  # ends when nobody holds its standard output


def test_the_wrong_number_of_devices_is_named():
    import jax

    count = jax.device_count()
    assert list(machine.check_devices(count, "cpu", "1MiB")) == []
    (line,) = machine.check_devices(count + 1, "cpu", "")
    assert line.startswith(f"jax: found {count} devices, expected {count + 1}")
    (line,) = machine.check_devices(count, "cpu", "1000000000GiB")
    assert "expected 1000000000GiB" in line


def test_xla_knows_every_flag(root):
    """XLA ends a process that is given an unknown flag."""
    program = "import jax; print(jax.devices())"
    done = subprocess.run(
        ["bash", "-c", f"source launch/common.sh && {sys.executable} -c '{program}'"],
        cwd=root,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
