"""Benchmarks are run by hand; these tests check that they still work with the package."""

import base64
import dataclasses
import importlib
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_jax.student.model_config import StudentConfig

pytestmark = pytest.mark.usefixtures("compile_quickly")

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_benchmark_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module(name)
    assert module.__doc__


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end the command")
def test_a_command_that_is_measured_ends_with_the_benchmark(tmp_path):
    (package := tmp_path / "prism_jax").mkdir()
    (package / "__main__.py").write_text("import os, time; os.write(1, b'%d' % os.getpid()); time.sleep(60)")
    measure = f"import start; start.subprocess.DEVNULL = None; start.spent({str(tmp_path)!r})"
    with subprocess.Popen([sys.executable, "-c", measure], cwd=FOLDER, stdout=subprocess.PIPE) as benchmark:
        command = int(os.read(benchmark.stdout.fileno(), 20))
        benchmark.kill()
    end = time.monotonic() + 20
    while pathlib.Path(f"/proc/{command}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not pathlib.Path(f"/proc/{command}").exists()


@pytest.mark.study
def test_penalised_maps_never_decrease_and_mend_offsets(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    importlib.import_module("maps").table(10)
    head, _, *rows = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line[:1] == "|")
    rows = [dict(zip(head, row, strict=True)) for row in rows]
    assert len(rows) == 56 and {row["penalised, decreasing"] for row in rows} == {"0 %"}
    assert any(row["Platt, decreasing"] != "0 %" for row in rows)
    mended = [row for row in rows if row["agent"].startswith(("offset", "both"))]
    assert len(mended) == 16 and all(float(row["penalised"]) < float(row["raw"]) for row in mended)


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """Writes the same files into two folders and returns what compares them, after a change of one in the second."""
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("same_numbers")
    floats = base64.b64encode(np.linspace(0.1, 0.9, 20).tobytes()).decode()
    contents = {
        "evaluation.json": '{"tp": 3, "cost": 0.25, "low": null, "names": ["a", "b"], "seconds": 1.5}',
        "table.csv": "policy,cost\nalways,0.250\nnever,−1,024.5\n",
        "report.html": f'<p>7 steps of 2 people</p>\n<script>{{"p": "{floats}"}}</script>\n',
        "printed-0.txt": "exit status 0\n12 rows in 3.2 s\n",
    }

    def compare(name=None, old="", new=""):
        for side in ("before", "after"):
            (tmp_path / side / "out").mkdir(parents=True, exist_ok=True)
            for path, text in contents.items():
                changed = text.replace(old, new) if side == "after" and path == name else text
                (tmp_path / side / "out" / path).write_text(changed)
            table = {"step": [1, 2], "p_need": [0.5, 0.25], "votes": [[True], None]}
            pq.write_table(pa.table(table), tmp_path / side / "out" / "scores.parquet")
        lines, files, values, meant = module.differences(tmp_path / "before", tmp_path / "after")
        assert (files, values > 40) == (5, True)
        return lines, meant

    return compare, module, floats


@pytest.mark.parametrize(
    ("name", "old", "new", "place"),
    [
        ("evaluation.json", '"tp": 3', '"tp": 4', ".tp: 3 before, 4 after"),
        ("evaluation.json", "0.25", "0.25000000001", ".cost: 0.25 before, 0.25000000001 after"),
        ("evaluation.json", "null", "0.0", ".low: None before, 0.0 after"),
        ("evaluation.json", ', "low": null', "", ".low: None before, 'nothing' after"),
        ("table.csv", "−1,024.5", "1,024.5", "line 3, number 0: -1024.5 before, 1024.5 after"),
        ("table.csv", "always", "ever", "line 2: 'always,#' before, 'ever,#' after"),
        ("report.html", "7 steps", "8 steps", "line 1, number 0: 7 before, 8 after"),
        ("printed-0.txt", "status 0", "status 1", "line 1, number 0: 0 before, 1 after"),
    ],
)
def test_a_difference_of_two_checkouts_is_named(two_folders, name, old, new, place):
    assert two_folders[0](name, old, new) == ([f"before/out/{name}:{place}"], 0)


def test_last_digits_and_times_are_no_difference_of_two_checkouts(two_folders, monkeypatch):
    compare, module, floats = two_folders
    assert compare() == ([], 0)
    for name, old, new in (
        ("evaluation.json", "0.25", "0.2500000000001"),
        ("evaluation.json", "1.5", "2.5"),
        ("printed-0.txt", "3.2 s", "4.1 s"),
        ("report.html", floats, base64.b64encode((np.linspace(0.1, 0.9, 20) + 1e-14).tobytes()).decode()),
    ):
        assert compare(name, old, new) == ([], 0)
    turned = base64.b64encode(np.linspace(0.1, 0.9, 20)[::-1].tobytes()).decode()
    assert len(compare("report.html", floats, turned)[0]) == 20
    monkeypatch.setitem(module.EXCEPTIONS, "before/out/*.cost", (0.01, "ends of intervals"))
    assert compare("evaluation.json", "0.25", "0.251") == ([], 1)
    assert len(compare("evaluation.json", "0.25", "0.3")[0]) == 1


def test_commands_that_fail_in_both_checkouts_are_no_agreement(two_folders, tmp_path, monkeypatch, capsys):
    module = two_folders[1]
    monkeypatch.setattr(module, "commands", lambda: {"plain": ["evaluate --no_such_flag"]})
    monkeypatch.setattr(module, "make_inputs", lambda side: side.mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(module, "state_of", lambda checkout: checkout.name)
    monkeypatch.setattr(module.sys, "executable", "false")
    options = [f"--{side}={tmp_path / side}" for side in ("before", "after")]
    monkeypatch.setattr(module.sys, "argv", ["same_numbers.py", *options, f"--out={tmp_path / 'kept'}"])
    for _ in range(2):  # nothing is kept of the first time
        assert module.main() == 1
        assert capsys.readouterr().out.count("evaluate --no_such_flag: exit status 1") == 2


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Runs benchmarks of the student on a model of a few thousand parameters and returns the note of each row."""
    pytest.importorskip("torch", reason="torch is what the student is compared with")
    monkeypatch.syspath_prepend(str(FOLDER))
    student = importlib.import_module("student")
    monkeypatch.setattr(student, "LIVE", (1, 3))
    monkeypatch.setattr(student, "TRAINING", dataclasses.replace(student.TRAINING, learning_rate=0.3))
    sizes = {"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "mlp_dim": 32}
    assert student.write_weights(str(tmp_path), StudentConfig(vocab_size=64, qk_norm=False, **sizes)) > 1000

    def measure(*names):
        rows = list(student.measure(names, str(tmp_path), threads=2, turns=3))
        assert all(min(row.ours + row.theirs) > 0 for row in rows)
        return {row.name.strip(): row.note for row in rows}

    return measure


def losses(note):
    """The first and the last loss, and how much the two sides differ."""
    return map(float, re.search(r"losses ([\d.]+) to ([\d.]+), (\S+) apart", note).groups())


@pytest.mark.slow
def test_both_sides_of_the_students_benchmark_train_alike(measured):
    first, last, apart = losses(measured("train")["training step, 4 rows of 256 tokens"])
    assert last < first
    assert apart < 1e-4


@pytest.mark.study  # compiles every shape of a live stream
def test_both_sides_of_the_students_benchmark_decide_and_write_alike(measured):
    notes = measured("packed", "decode", "stream", "live")
    first, last, apart = losses(notes["the same 8 rows, row by row, ours too"])
    assert last < first
    assert apart < 1e-4
    assert [notes[f"decode 32 tokens, batch {batch}"] for batch in (1, 8)] == ["same tokens"] * 2
    for name in (
        "a decision on the stream: they read slots",
        "a decision, 1 live streams",
        "a decision, 3 live streams",
    ):
        assert float(re.search(r"logits (\S+) apart", notes[name]).group(1)) < 1e-4


def test_the_gpu_benchmark_trains_by_the_papers_recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    accelerator = importlib.import_module("accelerator")
    config = accelerator.recipe(accelerator.parse(["--preset=tiny", "--rows=2", "--length=64"]))
    assert (config.student.remat, config.packing.context, config.training.batch) == ("auto", 64, 2)
    training = config.training
    assert (training.master, training.second_moment, training.learning_rate) == ("split", "factored", 1e-5)
    assert (training.steps, training.epochs) == (1000, 0.0)
