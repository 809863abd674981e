"""The paper in one script: its stages in order, what they cost in earnest, and commands that end with their parent."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import forked
import numpy as np
import pytest
from etils import epath
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.experiments import real_costs, reproduce
from prism_jax.experiments.paper_stages import BASE, DIAGRAMS, HELD_OUT, MAIN, OUTPUTS, PRINTED, Inputs, outcome, stages
from prism_jax.experiments.real_costs import Asks, Bill, Costs
from prism_jax.experiments.stages import Stage, main_of, run_stages
from prism_jax.labelling.teacher.labelling import Slow, answer_to
from prism_jax.labelling.teacher.prompts import PromptSettings, instructions, question
from prism_jax.proactivebench.checkout import events_of
from prism_jax.proactivebench.published import PAPER_SYSTEMS
from prism_jax.remote.requests import Message, Request
from prism_jax.remote.structured import schema_of
from prism_jax.streams.published.prompts import PLACE, observations, read_agent_prompt, read_judge_prompt
from prism_jax.training.pathway_config import PATHWAYS, SECOND_STAGES

PLAN = {"peak_gib": 60.0, "temp_gib": 20.0, "limit_gib": 75.0, "model_tflop": 500.0, "updates_per_hour": 1000.0}
COSTS = Costs(plans={1: PLAN, 8: PLAN | {"updates_per_hour": 4000.0}})
PAPER = next((pathlib.Path(__file__).parents[2].parent / "shared").glob("*.tex"), None)
BY_DOMAIN = ("coding=code.json", "writing=text.json")


def inputs(tmp_path, **changes):
    for name in PAPER_SYSTEMS.values():
        (tmp_path / "source" / "eval" / "traces_new" / name).mkdir(parents=True, exist_ok=True)
    made = Inputs(str(tmp_path / "source"), BY_DOMAIN, "weights", gpus=1, curated=1800, sample=229, budget=9.0)
    return made._replace(**changes)


def listed(tmp_path, **changes):
    return stages(epath.Path(tmp_path), inputs(tmp_path, **changes))


def value(words, flag):
    (found,) = (word.partition("=")[2] for word in words if word.startswith(f"--{flag}="))
    return found


@pytest.mark.parametrize(("gpus", "script"), [(1, "launch/a100.sh"), (8, "launch/node.sh")])
def test_every_pathway_of_the_paper_trains_after_its_first_stage(tmp_path, gpus, script):
    trainings = [stage.words for stage in listed(tmp_path, gpus=gpus) if stage.words[0] == script]
    runs = [pathlib.PurePath(value(words, "workdir")).name for words in trainings]
    assert set(runs) == {*PATHWAYS, PRINTED, HELD_OUT} - {"joint"}
    for run, words in zip(runs, trainings, strict=True):
        name = value(words, "config.pathway.name")
        assert name == (run if run in PATHWAYS else MAIN)
        assert value(words, "config.training.start") == (str(tmp_path / MAIN) if name in SECOND_STAGES else "weights")
        file = "curated.jsonl" if PATHWAYS[name].filtered else "judged_train.jsonl"
        file = "curated_paper.jsonl" if run == PRINTED else file
        assert value(words, "config.data.train_source") == str(tmp_path / file)
        for split in ("calibration", "test"):  # without labels: those come from verdicts on the student's own texts
            assert value(words, f"config.data.{split}_source") == str(tmp_path / "streams" / f"{split}.jsonl")
        assert ("--config.data.without_domain=writing" in words) == (run == HELD_OUT)
    assert all(runs.index(MAIN) < runs.index(name) for name in SECOND_STAGES)


def test_every_student_is_judged_on_what_it_wrote(tmp_path):
    made = listed(tmp_path)
    for name in (*PATHWAYS, PRINTED, HELD_OUT, BASE):
        if name == "joint":
            continue
        trained, judged, evaluated = (
            stage
            for stage in made
            if any(word.endswith((f"/{name}", f"/{name}/judged.parquet")) for word in stage.words)
            and stage.words[3] not in ("experiments", "export", "official_scores", "report")
            and not (stage.takes in SECOND_STAGES and name == MAIN)
        )
        assert trained.words[-1] == f"--workdir={tmp_path / name}"
        assert value(judged.words, "streams") == f"{tmp_path / name}/written_*.jsonl"
        assert value(judged.words, "scores_out") == value(evaluated.words, "scores")
        assert "--config.prompt=official" in judged.words


def test_the_printed_curation_has_one_cut_over_all_rows(tmp_path):
    first, printed = (stage.words for stage in listed(tmp_path) if stage.words[3] == "curate")
    assert "--method=paper" in printed and "--method=paper" not in first


def test_the_list_names_every_table_and_figure_of_the_paper(tmp_path):
    tables = {int(name.split()[1].rstrip(",")) for name in OUTPUTS if name.startswith("Table")}
    figures = {int(name.split()[1].rstrip(",")) for name in (*OUTPUTS, *DIAGRAMS) if name.startswith("Figure")}
    source = PAPER.read_text() if PAPER else ""
    assert tables == set(range(1, 15)) and figures == set(range(1, 7))
    if source:
        assert len(tables) == source.count("\\begin{table") and len(figures) == source.count("\\begin{figure")


def test_a_table_that_the_list_names_is_not_made_again(tmp_path):
    made = [stage for stage in listed(tmp_path) if stage.title.startswith("tables: ")]
    assert not any(stage.done() for stage in made)
    for file in (*OUTPUTS.values(), "student/tables.md"):
        path = tmp_path / "tables" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert [stage.title for stage in made if not stage.done()] == []


def test_what_is_not_made_has_its_reason(tmp_path):
    lacking = inputs(tmp_path, agent_data=("all.json",))
    (tmp_path / "source" / "eval" / "traces_new" / "gpt-4o").rmdir()
    (tmp_path / "tables" / "student").mkdir(parents=True)
    (tmp_path / "tables" / "student" / "drift.csv").write_text("")
    lines = list(outcome(epath.Path(tmp_path), lacking))
    assert any(line.endswith(f"{tmp_path}/tables/student/drift.csv") for line in lines if "Table 14" in line)
    (domains,) = (line for line in lines if "Table 12" in line)
    assert domains.endswith("not made: --agent_data names no file of writing beside another domain's")
    assert any("row GPT-4o of table 1: not made" in line for line in lines)
    assert any("human rows of tables 1, 6 and 7: not made: --human names no files" in line for line in lines)
    names = [value(stage.words, "workdir") for stage in stages(epath.Path(tmp_path), lacking) if stage.takes == MAIN]
    assert not any(name.endswith(HELD_OUT) for name in names)


def test_the_bill_follows_from_the_stages(tmp_path):
    made = {stage.title: stage for stage in listed(tmp_path)}
    teacher = real_costs.bill(made["the teacher labels the train streams"].takes)
    assert teacher.requests == 6790 - 679 and teacher.answer == 8192 * teacher.requests
    assert teacher.dollars == pytest.approx((teacher.prompt * 0.56 + teacher.answer * 1.68) / 1e6, rel=1e-4)
    judged = real_costs.bill(made["ensemble judges the teacher's proposals to train on"].takes)
    assert judged.requests == 3 * 2 * teacher.requests
    second = made["ensemble judges what dft wrote"].takes
    assert real_costs.bill(second).requests == 3 * (679 + 233)  # silence at a step is one question for all students
    assert real_costs.bill(Asks("agent", "configs/baselines.py:qwen3_8b", 233)).requests == 233
    whole = sum((real_costs.bill(s.takes) for s in made.values() if isinstance(s.takes, Asks)), Bill())
    total = list(reproduce.total(list(made.values()), COSTS))
    assert total[0] == f"answers: {whole}" and f"{whole.requests:,} requests" in total[0]
    assert total[1].startswith("1 x A100: at least ")


def test_hours_and_disk_follow_from_the_compilers_plan():
    one, eight = COSTS.of_training(MAIN)
    # 1,350 updates of 500 TFLOP at 1,000 per hour; two checkpoints of 40 GiB
    assert "1 x A100: 1,350 updates, 60.0 of 75.0 GiB each, 675 PFLOP, at least 1.4 hours, 2.7 at half" in one
    assert one.endswith("86 GB of checkpoints")
    assert "8 x A100: 675 updates" in eight and "at least 0.2 hours" in eight  # eight rows per update, 8 x 500 TFLOP
    assert "4,584 updates" in next(iter(COSTS.of_training("sft")))
    total = list(COSTS.total([MAIN, "sft"]))
    assert total[0].startswith("1 x A100: at least 5.9 hours for 2 trainings, 11.9 at half of the roofline")


def test_without_the_compiler_hours_stay_unknown():
    assert list(Costs({}).of_training("dft")) == ["in earnest: unknown without the compiler (launch/compiler.sh)"]


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
    done = forked.run("prism_jax.experiments", "reproduce", f"--workdir={tmp_path}", "--source=x")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: --agent_data: found none, expected it without --rehearse"


def test_commands_are_printed_as_a_user_types_them():
    assert main_of("label", "--x=1") == ("python", "-m", "prism_jax", "label", "--x=1")


@needs_checkout
def test_tokens_of_prompts_are_those_of_the_real_test_events():
    """Four bytes of a request's body count as a token, as in a dry run."""

    def mean_tokens(requests, config, kind):
        endpoint = real_costs.endpoints_of(kind, config)[0]
        return np.mean([len(request.prepared(endpoint, str).content) / 4 for request in requests])

    streams, rubric, agent = events_of(CHECKOUT), read_judge_prompt(CHECKOUT), read_agent_prompt(CHECKOUT)
    settings, asked = PromptSettings(), {"teacher": [], "judge": [], "agent": []}
    for stream in streams:
        conversation = [Message("system", agent.system)]
        for number, event in enumerate(stream.events):
            seen = stream.events[: number + 1]
            words = instructions("slow", settings), question(seen, stream.steps[number].candidates, settings)
            messages = (Message("system", words[0]), Message("user", words[1]))
            asked["teacher"].append(Request(messages, schema_of(answer_to(Slow, None))))
            messages = (Message("system", rubric.system), Message("user", rubric.user(observations(seen), None)))
            asked["judge"].append(Request(messages))
            shown = json.dumps({"Time": event.time_text, "Event": event.text})
            asked["agent"].append(Request((*conversation, Message("user", agent.step.replace(PLACE, shown)))))
            conversation += [Message("user", shown), Message("assistant", "x" * 400)]
    configs = {"teacher": "teacher.py", "judge": "judges.py", "agent": "baselines.py:deepseek_r1"}
    for kind, config in configs.items():
        assert mean_tokens(asked[kind], f"configs/{config}", kind) == pytest.approx(
            real_costs.PROMPT_TOKENS[kind], abs=0.5
        ), kind
