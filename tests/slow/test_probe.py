"""The main of the probe as a user runs it, and the study, on few streams and with a tiny frozen model."""

import json
import pathlib

import forked
import jax
import numpy as np
import pytest
from student_sizes import small

from prism_jax.scores import read_scores
from prism_jax.student.prompting.template import PromptConfig, make_tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import save_hf

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[2]
FEW = (
    "--config=configs/probe_simulator.py",
    "--config.data.train_streams=16",
    "--config.data.calibration_streams=12",
    "--config.data.test_streams=12",
)


SHORT = "--context=600"  # fewer programs are compiled


def run(main, *arguments):
    return forked.run("prism_jax", main, *arguments, cwd=ROOT, env={"JAX_PLATFORMS": "cpu"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "probe"
    result = run("probe", *FEW, f"--workdir={workdir}")
    assert result.returncode == 0, result.stderr
    return workdir


@pytest.fixture(scope="module")
def weights(tmp_path_factory, simulated):
    """A directory with a tiny random model and its tokenizer."""
    tokenizer = make_tokenizer(simulated, PromptConfig(vocab_size=600))
    folder, model = tmp_path_factory.mktemp("weights"), Qwen3(small(vocab_size=tokenizer.size))
    save_hf(folder, model, model.init(jax.random.key(0)))
    tokenizer.save(folder / "tokenizer.json")
    return folder


def test_a_run_leaves_the_files_of_a_students_run(finished):
    names = {"config.json", "run.json", "probe", "scores.parquet", "calibration.json", "evaluation.json", "gate.json"}
    assert {path.name for path in finished.iterdir()} == {*names, "fingerprints.json", "report.html"}
    scores = read_scores(finished / "scores.parquet")
    assert set(scores.split) == {"calibration", "test"}
    assert scores.p_both_true is not None


def test_the_scores_can_be_evaluated_like_anybodys(finished, tmp_path):
    given = (f"--scores={finished / 'scores.parquet'}", f"--workdir={tmp_path / 'again'}")
    result = run("evaluate", *given, "--calibrator=temperature")  # the probe's own
    assert result.returncode == 0, result.stderr
    for name in ("calibration.json", "evaluation.json"):
        assert (tmp_path / "again" / name).read_bytes() == (finished / name).read_bytes()


def test_the_workdir_itself_is_not_a_students(finished):
    result = run("evaluate", f"--workdir={finished}")
    assert result.returncode == 1
    assert "found the workdir of a probe, expected that of a student; --scores=" in result.stderr.splitlines()[-1]


def test_again_it_evaluates_the_probe_that_is_there(finished):
    names = ("scores.parquet", "calibration.json", "evaluation.json", "probe/probe.json")
    before = {name: (finished / name).read_bytes() for name in names}
    result = run("probe", *FEW, f"--workdir={finished}")
    assert result.returncode == 0, result.stderr
    assert {name: (finished / name).read_bytes() for name in names} == before
    other = run("probe", *FEW, "--config.fit.ridge=3.0", f"--workdir={finished}")
    assert other.returncode == 1
    assert "config.json: found a run of another config" in other.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def on_states(weights, tmp_path_factory):
    """A run on states whose need is given acceptance, and its flags."""
    workdir = tmp_path_factory.mktemp("runs") / "states"
    states = (f"--config.states.weights={weights}", "--config.states.blocks=(1,2)", "--config.states.components=4")
    flags = (*FEW, *states, "--config.fit.need_target=given_accept", f"--workdir={workdir}")
    result = run("probe", *flags)
    assert result.returncode == 0, result.stderr
    return workdir, flags


def test_states_are_read_once(on_states):
    """The second run reads only the stream whose file is damaged, alone in its batch, so equal up to rounding."""
    workdir, flags = on_states
    kept = {path: path.stat().st_mtime_ns for path in (workdir / "states").iterdir()}
    assert len(kept) == 40
    assert json.loads((workdir / "probe" / "probe.json").read_text())["states"]["blocks"] == [1, 2]
    damaged = min(kept)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    before = read_scores(workdir / "scores.parquet")
    assert before.need_given_accept
    again = run("probe", *flags)
    assert again.returncode == 0, again.stderr
    np.testing.assert_allclose(read_scores(workdir / "scores.parquet").p_accept_fast, before.p_accept_fast, atol=1e-5)
    assert {path for path in kept if path.stat().st_mtime_ns != kept[path]} == {damaged}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--config.states.weights=/nowhere.gguf",), "/nowhere.gguf: no such file, expected in states.weights"),
        (("--config.states.blocks=(2,1)",), "config.states.blocks: found (2, 1), expected ascending numbers"),
        (("--config.fit.ridge=0.0",), "config.fit.ridge: found 0.0, expected above 0"),
    ],
)
def test_bad_settings_are_one_line_and_write_nothing(tmp_path, flags, message):
    result = run("probe", *FEW, *flags, f"--workdir={tmp_path / 'run'}")
    assert result.returncode == 1
    assert message in result.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def decide(model, folder, *flags):
    """The decision records of two events, one with two offers."""
    lines = [{"stream": "ann", "time": 60 * i, "text": text} for i, text in enumerate(("Opens a file", "Is stuck"))]
    lines[1]["candidates"] = ["Offer to search", "Suggest a break"]
    events = folder / "events.jsonl"
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    served = run("agent", f"--model={model}", f"--input={events}", *flags)
    assert served.returncode == 0, served.stderr
    decisions = [json.loads(line) for line in served.stdout.splitlines()]
    assert [one["kind"] for one in decisions] == ["decision", "decision"]
    assert all(0 < one["p_accept"] < 1 for one in decisions)
    return decisions


def test_the_agent_serves_an_exported_probe(finished, tmp_path):
    model = tmp_path / "model"
    exported = run("export", f"--model={finished}", f"--workdir={model}")
    assert exported.returncode == 0, exported.stderr
    files = {"probe.json", "ngrams.json", "weights.safetensors", "prism.json", "digests.json"}
    assert {path.name for path in model.iterdir()} == files
    assert all(one["tokens"]["read"] == 0 for one in decide(model, tmp_path))


def test_the_agent_serves_a_probe_on_states_with_its_own_copy_of_the_model(on_states, tmp_path):
    """From the export, and from the workdir itself; what need means reaches the records."""
    model = tmp_path / "model"
    exported = run("export", f"--model={on_states[0]}", f"--workdir={model}")
    assert exported.returncode == 0, exported.stderr
    assert {path.name for path in (model / "model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "generation_config.json",
    }
    decisions = decide(model, tmp_path, SHORT)
    assert all(one["tokens"]["read"] > 0 for one in decisions)
    (tmp_path / "again").mkdir()
    again = decide(on_states[0], tmp_path / "again", SHORT)
    assert [one["p_accept"] for one in again] == [one["p_accept"] for one in decisions]
    assert all(one["policy"]["need_target"] == "given_accept" for one in decisions)
    weights = model / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    refused = run("agent", f"--model={model}", f"--input={tmp_path / 'events.jsonl'}")
    assert refused.returncode == 1
    assert "model.safetensors: found a missing, changed or unlisted file" in refused.stderr.splitlines()[-1]
