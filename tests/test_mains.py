"""The mains as a user runs them: processes, exit codes, one-line errors, no partial files."""

import json
import pathlib
import re
import shutil

import forked
import pytest

from prism_jax.__main__ import OF_THE_PACKAGE
from prism_jax.experiments.paper import registry
from studies.coverage.command import PARTS
from studies.registry import STUDIES as OUTSIDE

ROOT = pathlib.Path(__file__).parents[1]
TINY = (
    "--config=configs/quickstart.py",
    "--config.data.train_streams=12",
    "--config.data.calibration_streams=12",
    "--config.data.test_streams=12",
    "--config.simulator.min_events=4",
    "--config.simulator.max_events=5",
    "--config.student.hidden_dim=16",
    "--config.student.num_layers=1",
    "--config.student.num_heads=2",
    "--config.student.num_kv_heads=1",
    "--config.student.head_dim=8",
    "--config.student.mlp_dim=32",
    "--config.training.steps=4",
    "--config.training.batch=4",
    "--config.training.checkpoint_every=2",
)


def run(main, *arguments):
    if main == "studies":
        return forked.run("studies", *arguments)
    if main in OF_THE_PACKAGE or "." in main:
        return forked.run(f"prism_jax.{main}", *arguments)
    return forked.run("prism_jax", main, *arguments)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "tiny"
    result = run("train", *TINY, f"--workdir={workdir}")
    assert result.returncode == 0, result.stderr
    return workdir, result


def test_train_writes_every_file_of_a_run(finished):
    workdir, result = finished
    for name in (
        "config.json",
        "run.json",
        "tokenizer.json",
        "metrics.jsonl",
        "timings.jsonl",
        "tensorboard",
        "checkpoints",
        "scores.parquet",
        "calibration.json",
        "evaluation.json",
        "gate.json",
        "report.html",
    ):
        assert (workdir / name).exists(), name
    assert not list(workdir.rglob("*.partial"))
    assert "train        12 streams" in result.stdout
    assert "need" in result.stdout
    assert "dynamic" in result.stdout
    assert json.loads((workdir / "config.json").read_text())["student"]["vocab_size"] > 0
    assert json.loads((workdir / "run.json").read_text())["command"].startswith("python -m prism_jax train --config")


def test_the_progress_bar_shows_step_terms_speed_and_time_left(finished):
    _, result = finished
    line = [line for line in result.stderr.replace("\r", "\n").splitlines() if "4/4" in line][-1]
    for part in ("loss=", "need=", "accept=", "burden=", "response=", "tokens/s="):
        assert part in line
    assert "<" in line  # tqdm's [elapsed<left]
    assert result.stderr.count("/4 [") == 2  # in a file of logs, only at the beginning and at the end


@pytest.mark.slow
def test_evaluate_gives_the_same_numbers_without_training(finished):
    workdir, trained = finished
    names = ("scores.parquet", "calibration.json", "evaluation.json")
    before = [(workdir / name).read_bytes() for name in names]
    steps = (workdir / "metrics.jsonl").read_bytes()
    result = run("evaluate", f"--workdir={workdir}")
    assert result.returncode == 0, result.stderr
    assert [(workdir / name).read_bytes() for name in names] == before
    assert (workdir / "metrics.jsonl").read_bytes() == steps
    table = trained.stdout[trained.stdout.index("test steps of") :]
    assert result.stdout.endswith(table)


@pytest.mark.slow
def test_the_report_leaves_out_texts_where_asked(finished, tmp_path):
    workdir, _ = finished
    copy = shutil.copytree(workdir, tmp_path / "copy")
    texts = re.findall('<td class="what"><bdi>(.+?)</bdi>', (copy / "report.html").read_text())
    assert len(texts) > 3
    result = run("evaluate", f"--workdir={copy}", "--notexts")
    assert result.returncode == 0, result.stderr
    page = (copy / "report.html").read_text()
    assert not [text for text in texts if text in page]
    assert "p_accept" in page


def test_export_writes_a_model_directory_once(finished, tmp_path):
    workdir, _ = finished
    result = run("export", f"--model={workdir}", f"--workdir={tmp_path / 'model'}", "--dtype=bfloat16")
    assert result.returncode == 0, result.stderr
    files = {"config.json", "generation_config.json", "model.safetensors", "prism.json", "digests.json"}
    files |= {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert {path.name for path in (tmp_path / "model").iterdir()} == files
    again = run("export", f"--model={workdir}", f"--workdir={tmp_path / 'model'}")
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1].startswith(f"error: {tmp_path}/model: found something there")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_workdir_of_another_config_is_refused(finished):
    workdir, _ = finished
    before = (workdir / "config.json").read_bytes()
    result = run("train", *TINY, f"--workdir={workdir}", "--config.decision.c_fn=3.0")
    assert result.returncode == 1
    message = "config.decision.c_fn: found 2.0, expected 3.0; the folder holds a run of another config"
    assert message in result.stderr.splitlines()[-1]
    assert (workdir / "config.json").read_bytes() == before


def _cut_arrays(run):
    for path in (run / "checkpoints").glob("*/state/**/d/*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "tokenizer": (
        "evaluate",
        lambda run: (run / "tokenizer.json").write_text("{"),
        "/tokenizer.json: tokenizer: found no valid definition (EOF while parsing",
    ),
    "checkpoint": ("export", _cut_arrays, "/checkpoints: found no readable checkpoint among 2 (newest: "),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_is_one_line_and_stays_as_it_is(finished, tmp_path, case):
    main, damage, message = DAMAGE[case]
    workdir = shutil.copytree(finished[0], tmp_path / "run")
    damage(workdir)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = run(
        main,
        *([f"--model={workdir}", f"--workdir={tmp_path / 'model'}"] if main == "export" else [f"--workdir={workdir}"]),
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: {workdir}{message}")
    assert "Traceback" not in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


BAD = {
    "an unknown key": (("--config.training.setps=3",), "setps"),
    "a bad value": (("--config.decision.c_fa=-1.0",), "config.decision.c_fa: found -1.0, expected a cost from"),
    "a wrong type": (("--config.training.steps=many",), "many"),
    "a short context": (("--config.packing.context=30",), "expected at most the context of 30"),
    "too small a vocabulary": (("--config.student.vocab_size=100",), "student.vocab_size: found 100"),
    "a missing file": (("--config.data.name=jsonl", "--config.data.source=/no/such.jsonl"), "/no/such.jsonl"),
    "more devices than there are": (("--config.mesh.tensor=64",), "mesh: found"),
    "a stray argument": (("stray",), "found argument 'stray'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, case):
    arguments, message = BAD[case]
    result = run("train", *TINY, *arguments, f"--workdir={tmp_path / 'run'}")
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert lines[-1].startswith("error: ")
    assert message in lines[-1]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


EMPTY = {
    "train": ("--config=configs/quickstart.py", "--workdir="),
    "evaluate": ("--scores=scores.parquet", "--workdir="),
    "export": ("--weights=model.gguf", "--workdir="),
    "curate": ("--streams=streams.jsonl", "--out="),
    "probe": ("--config=configs/probe_simulator.py", "--workdir="),
    "promise": ("--promise=burden<=0.2", "--scores="),
    "experiments field": ("--sources=simulator", "--workdir= "),
    "studies thinking": ("--workdir=",),
    "studies injections": ("--workdir=tables", "--weights="),
    "studies live_context": ("--workdir=",),
}


@pytest.mark.parametrize("main", EMPTY)
def test_an_empty_path_is_one_line_and_writes_nothing(main):
    before = sorted(ROOT.iterdir())
    result = run(*main.split(), *EMPTY[main])
    flag = EMPTY[main][-1].split("=")[0]
    assert result.returncode == 1
    assert f"{flag}: found an empty value, expected a path (. is the current folder)" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert sorted(ROOT.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tables",), "experiment: found 'tables', expected all or one of main, thresholds"),
        (("main",), "--workdir: found no value, expected one (see --help)"),
        (("all", "--scores=FILE", "--seeds=2"), "--seeds: found 2 beside --scores, --system or --model, expected 1"),
        (("main", "--panel=a=b"), "--panel: found it without --system, expected --system=NAME=PATH with it"),
        (("latency", "--model=DIR"), "--model: found it without --streams, expected the streams"),
        (("domain_transfer", "--held_out=writing"), "--held_out: found it without --scores, expected the scores"),
        (("main", "--skip_bad"), "--skip_bad: found it without --scores, expected it with a scores file"),
        (("pathways", "--scores=FILE"), "pathways: it needs trainings, which a call with --scores does not make"),
    ],
)
def test_an_experiment_that_cannot_run_is_one_line_and_writes_nothing(arguments, message, tmp_path):
    folder = (f"--workdir={tmp_path / 'tables'}",) if len(arguments) > 1 else ()
    result = run("experiments", *arguments, *folder)
    assert result.returncode == 1
    assert message in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "tables").exists()


SLOW_STUDIES = (*("live_context", "training_pathways", "field", "distillation", "judges"),)
STUDIES = ["injections", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_STUDIES)]


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_shows_help_and_refuses_unknown_flags(study):
    by = "studies" if study in OUTSIDE else "experiments"
    helped = run(by, study, "--help")
    assert helped.returncode == 0
    assert "--workdir" in helped.stdout
    assert f"python -m {'studies' if study in OUTSIDE else 'prism_jax experiments'} {study}" in helped.stdout
    refused = run(by, study, "--seeds=3")
    assert (refused.returncode, refused.stderr.splitlines()[-1][:6]) == (1, "error:")
    assert "seeds" in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "a", "events": [{"time": 0, "text": "x"}], "steps": [{"event": 0', "streams.jsonl:1: "),
        ('{"id": "a", "events": [{"time": 0, "text": "x"}], "steps": [{"event": 0, "y_need": 1}]}\n', "split"),
    ],
    ids=["truncated", "an empty split"],
)
def test_bad_streams_are_one_line_and_leave_nothing(tmp_path, content, message):
    source = tmp_path / "streams.jsonl"
    source.write_text(content)
    workdir = tmp_path / "run"
    result = run("train", *TINY, "--config.data.name=jsonl", f"--config.data.source={source}", f"--workdir={workdir}")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert message in result.stderr.splitlines()[-1]
    assert not workdir.exists()


def test_evaluate_without_a_run_says_so(tmp_path):
    result = run("evaluate", f"--workdir={tmp_path}")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: {tmp_path}/config.json: no such file")
    assert list(tmp_path.iterdir()) == []


def test_only_to_look_at_a_log_no_folder_is_needed(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("user,took\n" + "a,yes\nb,no\n" * 4)
    roles = "--columns=person=user,accepted=took"
    looked, unwritten = run("evaluate", f"--scores={log}"), run("evaluate", f"--scores={log}", roles)
    assert looked.returncode == 1 and f"--scores={log} {roles} --workdir=out" in looked.stderr
    assert unwritten.returncode == 1 and "--workdir: found no value, expected a folder" in unwritten.stderr


def test_the_package_lists_its_commands_and_runs_them():
    package = ROOT / "prism_jax"
    runnable = {path.stem for path in package.glob("*.py") if "__main__" in path.read_text()} - {"__main__", "__init__"}
    runnable |= {path.stem for path in (package / "commands").glob("*.py") if "__main__" in path.read_text()}
    runnable -= {"__init__"}
    runnable |= {path.parent.name for path in package.glob("*/__main__.py")}
    listed = forked.run("prism_jax")
    assert listed.returncode == 0
    assert set(re.findall(r"^  (\w+) ", listed.stdout, re.MULTILINE)) == runnable
    alone, by_name = run("export", "--nope"), forked.run("prism_jax", "export", "--nope")
    assert (alone.returncode, alone.stderr) == (by_name.returncode, by_name.stderr)
    unknown = forked.run("prism_jax", "curates")
    assert unknown.returncode == 1
    assert "command: found 'curates', expected one of train, " in unknown.stderr
    assert "did you mean 'curate'?" in unknown.stderr


def test_a_config_that_ends_the_program_is_not_taken_for_help(tmp_path):
    (tmp_path / "ends.py").write_text("def get_config():\n    raise SystemExit(3)\n")
    done = run("train", f"--config={tmp_path / 'ends.py'}", f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--records=a", "--workdir=b", "--votes=c"),
            "--votes: found it with --records, expected it with --traces only",
        ),
        (("--traces=a", "--streams=c"), "--streams: found it with --traces, expected it with --records only"),
        (("--records=a",), "--workdir: found none, expected the folder of the traces, with --records"),
        (("--taught=a", "--streams=c"), "--streams: found it with --taught, expected it with --records only"),
    ],
)
def test_flags_of_traces_and_of_records_do_not_mix(arguments, message):
    done = run("official_scores", *arguments)
    assert (done.returncode, done.stderr) == (1, f"error: {message}\n")


def test_traces_become_streams_for_judges_without_a_table(tmp_path):
    (tmp_path / "model").mkdir()
    observed = {"observation": {"time": "1", "event": "x"}, "agent_response": ["Help?"]}
    (tmp_path / "model/code_1.json").write_text(json.dumps([observed]))
    done = run("official_scores", f"--traces={tmp_path}", f"--workdir={tmp_path}")
    assert done.returncode == 0 and "streams for python -m prism_jax judge" in done.stdout, done.stderr
    assert [path.name for path in (tmp_path / "streams").iterdir()] == ["model.jsonl"]


def test_help_lists_the_flags_wherever_they_are_defined():
    """Flags of the command's own module, of the study that it runs, and of shared modules."""
    for command, names in {
        ("experiments", "field"): ("sources", "folds", "workdir"),
        ("studies", "judges"): ("source", "workdir"),
        ("agent",): ("model", "expect_digest", "compilation_cache"),
        ("label",): ("streams", "agent", "out"),
    }.items():
        helped = run(*command, "--help")
        assert helped.returncode == 0
        words = " ".join(command if command[0] == "studies" else ("prism_jax", *command))
        assert helped.stdout.startswith(f"    python -m {words} ")
        assert len(helped.stdout.splitlines()) <= 50
        assert [name for name in names if not re.search(rf"\s--(\[no\])?{name}\b", helped.stdout, re.M)] == []


def test_experiments_are_listed_with_what_they_need():
    rows = json.loads(run("experiments", "--json").stdout)
    assert {row["name"] for row in rows} == {*registry.EXPERIMENTS, *registry.STUDIES, *OUTSIDE}
    assert {row["name"] for row in rows if row["command"] == "python -m studies"} == set(OUTSIDE)
    listed = run("experiments", "--list").stdout
    for row in rows:
        needs = [" ".join(f"--{flag}" for flag in row["needs"])] * bool(row["needs"])
        columns = (row["name"], row["takes"], *needs, row["shows"])
        assert re.search(rf"^  {'  +'.join(map(re.escape, columns))}$", listed, re.MULTILINE)
        assert re.search("second|minute|hour", row["takes"])


def test_a_study_outside_the_package_is_run_by_its_own_command(monkeypatch, tmp_path):
    outside = run("experiments", "judges", "--source=DIR")
    words = "error: experiment: found 'judges', which is run by `python -m studies judges`\n"
    assert (outside.returncode, outside.stderr) == (1, words)
    assert OUTSIDE["coverage"].parts == tuple(PARTS)
    assert run("experiments", "alarms", "--log=FILE").stderr.endswith("`python -m studies coverage --of=alarms`\n")
    folder = run("experiments", "main", "--workdir", "judges", "--scores=FILE")
    assert folder.stderr.startswith("error: FILE: found the suffix ''")
    unknown = run("studies", "judge")
    assert (unknown.returncode, unknown.stderr.partition("expected")[0]) == (1, "error: study: found 'judge', ")
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "prism_jax" / "experiments" / "paper" / "registry.py"))
    assert registry.of_checkout() == {}


def test_a_study_without_a_folder_prints_its_table_and_with_one_writes_it(tmp_path):
    arguments = ("coverage", "--of=alarms", "--times=20")
    printed, written = run("studies", *arguments), run("studies", *arguments, f"--workdir={tmp_path / 'alarms'}")
    assert printed.returncode == written.returncode == 0, printed.stderr + written.stderr
    assert written.stdout.startswith(printed.stdout)
    names = {path.name for path in (tmp_path / "alarms").iterdir()}
    table = "coverage_alarms_01_alarms_of_simulated_people"
    assert names == {f"{table}.csv", f"{table}.md", f"{table}.tex", "coverage_alarms.json"}
    record = json.loads((tmp_path / "alarms" / "coverage_alarms.json").read_text())
    assert record["made"]["command"].partition(" ")[2].startswith("-m studies coverage --of=alarms --times=20 ")
