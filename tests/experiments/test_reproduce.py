"""The paper in one script: its stages in order, what they cost in earnest, and commands that end with their parent."""

import os
import signal
import subprocess
import sys
import time

import forked
import pytest
from etils import epath

from prism_jax.experiments import reproduce
from prism_jax.experiments.real_costs import Asked, Costs
from prism_jax.experiments.stages import Stage, main_of, run_stages
from prism_jax.training.pathways.table import PATHWAYS, SECOND_STAGES

PLAN = {"peak_gib": 60.0, "temp_gib": 20.0, "limit_gib": 75.0, "model_tflop": 500.0, "updates_per_hour": 1000.0}
COSTS = Costs(
    label=Asked(1.0, 1000.0, 2000.0, 0.01, "a teacher: 1 and 2 USD per million tokens (2026-01)"),
    judge=Asked(6.0, 3000.0, 400.0, 0.03, "judges"),
    sample="a sample",
    plans={1: PLAN, 8: PLAN | {"updates_per_hour": 4000.0}},
)


def listed(folder, gpus=1):
    inputs = reproduce.Inputs(
        {"train": "a", "calibration": "b", "test": "c"}, "weights", gpus, 1800, (), "configs/judges_paper.py", 9.0
    )
    return reproduce.stages(epath.Path(folder), inputs)


@pytest.mark.parametrize(("gpus", "script"), [(1, "launch/a100.sh"), (8, "launch/node.sh")])
def test_every_pathway_of_the_paper_trains_after_its_first_stage(tmp_path, gpus, script):
    stages = listed(tmp_path, gpus)
    trainings = [stage.words for stage in stages if stage.words[0] == script]
    names = [next(word for word in words if "pathway.name" in word).partition("=")[2] for words in trainings]
    assert set(names) == set(PATHWAYS) - {"joint"}
    for name, words in zip(names, trainings, strict=True):
        start = str(tmp_path / "rdc_sft") if name in SECOND_STAGES else "weights"
        assert f"--config.training.start={start}" in words
        file = "curated.jsonl" if PATHWAYS[name].filtered else "judged_train.jsonl"
        assert f"--config.data.train_source={tmp_path / file}" in words
    assert all(names.index("rdc_sft") < names.index(name) for name in SECOND_STAGES)
    assert [stage.asks for stage in stages] == [True] * 6 + [False] * (len(stages) - 6)
    assert not any(stage.done() for stage in stages)


def test_costs_are_scaled_to_the_papers_rows(tmp_path):
    lines = {stage.title: "\n".join(COSTS.of_stage(stage)) for stage in listed(tmp_path)}
    label = lines["the teacher labels the train streams"]
    assert "6,790 rows, 6,790 requests, 6.8 million tokens of prompts, up to 13.6 of answers, up to 67.90 USD" in label
    assert "(2026-01); tokens as on a sample" in label
    assert "233 rows, 1,398 requests" in lines["three judges judge the test streams"]
    one, eight = lines["rdc_sft: trained, calibrated, evaluated"].splitlines()
    # 1,350 updates of 500 TFLOP at 1,000 per hour; two checkpoints of 40 GiB
    assert "1 x A100: 1,350 updates, 60.0 of 75.0 GiB each, 675 PFLOP, at least 1.4 hours, 2.7 at half" in one
    assert one.endswith("86 GB of checkpoints")
    assert "8 x A100: 675 updates" in eight and "at least 0.2 hours" in eight  # eight rows per update, 8 x 500 TFLOP
    assert "5,093 updates" in lines["sft: trained, calibrated, evaluated"]
    total = list(COSTS.total(("rdc_sft", "sft")))
    assert total[0] == "answers: 49,161 requests, up to 280.92 USD"
    assert total[1].startswith("1 x A100: at least 6.4 hours for 2 pathways, 12.9 at half of the roofline")


def test_without_the_compiler_hours_stay_unknown(tmp_path):
    costs = Costs(COSTS.label, COSTS.judge, "", {})
    stage = next(stage for stage in listed(tmp_path) if stage.title.startswith("dft"))
    assert list(costs.of_stage(stage)) == ["in earnest: unknown without the compiler (launch/compiler.sh)"]


def test_a_stage_that_is_done_is_not_repeated_and_one_that_fails_ends_the_rest(tmp_path, capfd):
    ran = tmp_path / "ran"
    write = Stage("writes", ("python", "-c", f"open({str(ran)!r}, 'a').write('x')"), ran.exists)
    fails = Stage("fails", ("python", "-c", "raise SystemExit(3)"), lambda: False)
    never = Stage("never", ("python", "-c", f"open({str(ran)!r}, 'a').write('y')"), lambda: False)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^\[2/3\] python -c 'raise SystemExit\(3\)': ended with status 3$"):
            run_stages([write, fails, never], asks=False, beside=lambda stage: [f"beside {stage.title}"])
    assert ran.read_text() == "x"
    printed = capfd.readouterr().out
    assert printed.count("[1/3] writes: done before") == 1 and printed.count("    beside writes") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_command_ends_with_a_parent_that_is_killed(tmp_path):
    beat = tmp_path / "beat"
    child = f"import time\nwhile True: open({str(beat)!r}, 'a').write('.'); time.sleep(0.02)"
    parent = f"from prism_jax.experiments.stages import run; run(('python', '-c', {child!r}))"
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        while not beat.exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.2)
    size = beat.stat().st_size
    time.sleep(0.3)
    assert beat.stat().st_size == size


def test_a_real_run_says_what_it_lacks(tmp_path):
    done = forked.run("prism_jax.experiments", "reproduce", f"--workdir={tmp_path}", "--train=x")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: --calibration: found none, expected it without --rehearse"


def test_commands_are_printed_as_a_user_types_them():
    assert main_of("label", "--x=1") == ("python", "-m", "prism_jax", "label", "--x=1")
