"""Scores in many files: read part by part with whole steps, evaluated by several workers, killed and resumed."""

import dataclasses
import html
import importlib.util
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from etils import epath
from in_parts import evaluate, leaves, write
from synthetic_scores import POINT, make_columns

from prism_jax.decision.calibration import CalibrationConfig, CalibrationWarning, fit_map, map_to_dict
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.gate import Gate
from prism_jax.report import tables
from prism_jax.runs import sharded
from prism_jax.runs.answers import evaluate_log
from prism_jax.runs.running import Running
from prism_jax.runs.scores_files import evaluate_scores
from prism_jax.scores import Scores, ScoresError, parts, write_scores
from prism_jax.scores.joining import joined

IN_PARTS = [
    sys.executable,
    "-c",
    "import sys; from prism_jax.__main__ import main; from prism_jax.runs import running\n"
    "running.MOST_EXACT_ROWS = 0; main(sys.argv[1:])",
]
"""The command, which takes even few rows for too many to be held in memory."""


@pytest.fixture
def no_tables(monkeypatch):
    """Prints no tables, which takes longer than to evaluate few rows."""
    monkeypatch.setattr(tables, "print_tables", lambda evaluation: None)


def scores_of(candidates=1, **knobs):
    columns = {name: np.repeat(np.asarray(column), candidates) for name, column in make_columns(**knobs).items()}
    n = len(columns["step"])
    if candidates > 1:
        columns |= {"candidate": np.tile(np.arange(candidates), n // candidates)}
        columns["p_accept_fast"] = np.random.default_rng(0).random(n)
    return Scores.from_columns(columns)


def tree(files):
    return json.loads(files["evaluation.json"])


def assert_close(found, expected, divided=False):
    """Equal, integers exactly and floats but for rounding; ends of intervals and bounds follow from these.

    Where parts divide streams, the pairs of a stream's own steps that no part holds are estimated: the ends of an
    area's interval then move a little.
    """
    found, expected = dict(leaves(found)), dict(leaves(expected))
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        assert type(found[path]) is type(value), path
        if isinstance(value, float):
            wide = divided and path.endswith((".audbc_low", ".audbc_high"))
            value = pytest.approx(value, abs=0.005) if wide else pytest.approx(value, rel=1e-7, abs=1e-10)
        assert found[path] == value, path


@pytest.mark.parametrize(
    ("group", "candidates"), [(1, 1), (7, 3), (25, 4), (10_000, 3), pytest.param(3, 50, marks=pytest.mark.slow)]
)
def test_every_row_is_read_once_and_every_step_whole(tmp_path, small_parts, group, candidates):
    """Also where a step's rows stand in several row groups, and in several parts."""
    scores, path = scores_of(candidates, streams=5, steps=6, slow=False), tmp_path / "scores.parquet"
    write(path, scores, group)
    found = parts.parts_of(str(path))
    assert sum(part.rows for part in found) == len(scores)
    chunks = [chunk for part in found for chunk in parts.read_part(part)]
    together = joined(chunks)
    for name, column in scores.columns().items():
        np.testing.assert_array_equal(getattr(together, name), column)
    steps = [set(zip(chunk.stream, chunk.step.tolist(), strict=True)) for chunk in chunks]
    assert sum(map(len, steps)) == len(set().union(*steps)) == 30


def test_folders_globs_lines_and_any_order_give_the_same(tmp_path, small_parts, no_tables):
    scores = scores_of(2, streams=24, steps=5, slow=False)
    write(tmp_path / "one.parquet", scores)
    expected = tree(evaluate(tmp_path / "one.parquet", tmp_path / "out"))
    many = tmp_path / "many"
    many.mkdir()
    number = scores.numbered("stream")[1]
    for i in range(3):
        path = many / f"part-{i}.{'jsonl' if i == 1 else 'parquet'}"
        part = scores.take(number % 3 == i)
        write_scores(path, part) if i == 1 else write(path, part)
    (many / "score.json").write_text(json.dumps({"complete": True}))
    assert_close(tree(evaluate(many, tmp_path / "out")), expected, divided=True)
    assert_close(tree(evaluate(many / "part-*", tmp_path / "out")), expected, divided=True)
    shuffled = scores.take(np.random.default_rng(3).permutation(len(scores)))
    write(tmp_path / "shuffled.parquet", shuffled)
    assert_close(tree(evaluate(tmp_path / "shuffled.parquet", tmp_path / "out")), expected, divided=True)
    evaluate_scores(str(many), epath.Path(tmp_path / "exact"), POINT, running=Running())
    exact = json.loads((tmp_path / "exact" / "evaluation.json").read_text())
    assert exact["counts"] == expected["counts"] and "bounds" not in exact
    (many / "score.json").write_text(json.dumps({"complete": False}))
    for place in (many, many / "part-*", many / "part-0.parquet", tmp_path / "*" / "part-*.parquet"):
        with pytest.raises(ScoresError, match=r"many/score.json: found an unfinished run of scoring"):
            evaluate(place, tmp_path / "out")


def biased(seed=0, steps=2000, certain=False):
    """Steps of an agent whose log-odds are 1.5 times the true ones plus 1.5; with `certain`, some stated as 0 and 1."""
    rng = np.random.default_rng(seed)
    true = rng.normal((-0.6, -0.3), 1.2, (steps, 2))
    p = 1 / (1 + np.exp(-1.5 * true - 1.5))
    if certain:
        p = np.where(np.abs(p - 0.5) > 0.45, np.round(p), p)
    y = (rng.random((steps, 2)) < 1 / (1 + np.exp(-true))).astype(float)
    return Scores.from_columns(
        {
            "stream": [f"s{i // 20}" for i in range(steps)],
            "step": np.arange(steps) % 20,
            "split": ["calibration" if i < steps // 4 else "test" for i in range(steps)],
            **{f"p_{name}_fast": p[:, i] for i, name in enumerate(("need", "accept"))},
            **{f"y_{name}": y[:, i] for i, name in enumerate(("need", "accept"))},
        }
    )


@pytest.mark.parametrize(
    ("calibrator", "exact"),
    [("temperature", True), ("temperature", False), (None, True), pytest.param(None, False, marks=pytest.mark.slow)],
)
def test_a_biased_agent_is_mended_or_the_first_line_says_what_is_cheaper(
    coarse, monkeypatch, tmp_path, capsys, calibrator, exact
):
    monkeypatch.setattr(parts, "PART_ROWS", 500)
    write(tmp_path / "scores.parquet", biased(), group=250)
    folder, running = epath.Path(tmp_path / "out"), Running(workers=1, most=None if exact else 0)
    evaluate_scores(str(tmp_path / "scores.parquet"), folder, POINT, calibrator=calibrator, running=running)
    printed = capsys.readouterr().out
    found = json.loads((folder / "evaluation.json").read_text())
    cost = {(row["policy"], row["form"]): row["realised_cost"] for row in found["policies"]}
    gate, page = Gate.load(folder), html.unescape((folder / "report.html").read_text())
    deployed, never = cost["dynamic", "calibrated"], cost["never", None]
    if calibrator is None:
        assert deployed < 0.8 * min(never, cost["dynamic", "raw"]) and gate.accept.scale > 0 > gate.accept.bias
        assert gate.caution == "" and "caution" not in found and "Caution" not in printed
    else:
        assert deployed > never  # a temperature cannot mend a bias
        assert gate.caution == found["caution"] == printed.splitlines()[0] and gate.caution in page
        start = f"Caution: on these test steps the deployed gate costs {deployed:.4f} per step, and "
        assert gate.caution.startswith(start) and f"{never:.4f} by never offering, less by" in gate.caution
        assert re.search(r"\d % more \(not told apart\) than never offering and \d+ % more than on the raw sig", page)
        assert f"<em>never {never:.4f}, not told apart</em>" in page


@pytest.mark.parametrize(
    "calibrator",
    ["penalised", *(pytest.param(name, marks=pytest.mark.slow) for name in ("temperature", "platt", "isotonic"))],
)
def test_stated_certainties_do_not_ruin_a_map(coarse, no_tables, monkeypatch, tmp_path, calibrator):
    """Maps are near those of the other rows alone, in memory and by parts, and say how many there are."""
    scores, out = biased(certain=True), {}
    monkeypatch.setattr(parts, "PART_ROWS", 250)
    write(tmp_path / "scores.parquet", scores.take(np.arange(1000)), group=250)
    for exact in (True, False):
        folder, running = epath.Path(tmp_path / f"{exact}"), Running(workers=1, most=None if exact else 0)
        with pytest.warns(CalibrationWarning, match="p_accept_fast: .* of 500 probabilities with labels are exactly"):
            evaluate_scores(str(tmp_path / "scores.parquet"), folder, POINT, calibrator=calibrator, running=running)
        out[exact] = json.loads((folder / "calibration.json").read_text())["accept_fast"]
    rows = scores.take(scores.split == "calibration")
    certain = (rows.p_accept_fast == 0) | (rows.p_accept_fast == 1)
    assert out[True]["certain"] == out[False]["certain"] == certain.sum() > 50
    if calibrator == "isotonic":
        assert all(0 < level < 1 for one in out.values() for level in one["y"])
        return
    inside = rows.take(~certain)
    alone = map_to_dict(fit_map(CalibrationConfig(calibrator), inside.p_accept_fast, inside.y_accept))
    for key in alone.keys() - {"calibrator"}:
        assert out[False][key] == pytest.approx(out[True][key], rel=0.01, abs=0.01)
        exactly = key in ("temperature", "bound")
        assert out[True][key] == pytest.approx(alone[key], **({"rel": 1e-9} if exactly else {"abs": 0.3}))
    certainty = float(Gate.load(tmp_path / "False").accept(1.0))
    assert certainty == 1.0 if calibrator == "temperature" else 0.5 < certainty < 0.95


@pytest.mark.study
@pytest.mark.parametrize("columns", [None, "person=stream,time=step,score=p_accept_fast,accepted=took"])
def test_kills_change_no_byte(tmp_path, columns):
    """The command with two workers, killed ten times at random moments, goes on to the bytes of an undisturbed run."""
    source = tmp_path / "scores"
    source.mkdir()
    for i in range(16):
        scores = scores_of(seed=i, streams=200, steps=50)
        names = np.array([f"{name} of {i}" for name in scores.stream], object)
        columns_of_file = scores.columns() | {"stream": names}
        write_scores(source / f"{i}.parquet", Scores.from_columns(columns_of_file))
        if columns is not None:  # a log, whose answers are drawn
            table = pq.read_table(source / f"{i}.parquet")
            took = np.random.default_rng(i).random(len(table)) < table["p_accept_fast"].to_numpy()
            pq.write_table(table.append_column("took", pa.array(took)), source / f"{i}.parquet")
    command = [*IN_PARTS, "evaluate", f"--scores={source}", "--workers=2"]
    command += [] if columns is None else [f"--columns={columns}"]

    def start(folder):
        return subprocess.Popen(
            [*command, f"--workdir={folder}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    began = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    seconds = time.monotonic() - began
    rng = np.random.default_rng(0)
    for _ in range(10):
        process = start(tmp_path / "killed")
        time.sleep(rng.uniform(0.1, 1.0) * seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert start(tmp_path / "killed").wait() == 0
    files = sorted(path.name for path in (tmp_path / "whole").iterdir() if path.suffix != ".html")
    assert files and {*files} <= {path.name for path in (tmp_path / "killed").iterdir()}
    for name in files:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.study
def test_ten_million_rows(root):
    """Every path of the benchmark, with Ray where it is installed: a GiB is enough for parts, and bounds hold."""
    paths = ["exact", "parts-1", "parts-2"] + (["ray-2"] if importlib.util.find_spec("ray") else [])
    command = [sys.executable, str(root / "benchmarks" / "scores_rows.py"), "--rows=10000000"]
    command += [f"--paths={','.join(paths)}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert int(re.search(r"parts-1:.* ([\d,]+) MiB at most", printed)[1].replace(",", "")) < 1024
    found = re.findall(r"(\S+): largest difference (\S+) .*largest bound (\S+)", printed)
    assert [path for path, _, _ in found] == paths[1:]
    for _, difference, bound in found:
        assert float(difference) <= float(bound) < 1e-2


LOGS = pathlib.Path(__file__).parents[2] / "shared" / "acceptance-logs"


@pytest.mark.slow
@pytest.mark.skipif(not LOGS.is_dir(), reason="the public logs of offers are not here")
@pytest.mark.parametrize(("name", "score"), [("copilot", "confidence"), ("coauthor", "max_log_prob")])
def test_real_logs_differ_by_no_more_than_the_bounds(tmp_path, capsys, name, score):
    columns = parse_columns(["person=person", "time=time", f"score={score}", "accepted=accepted"])
    scores = tmp_path / "scores.parquet"
    log = str(LOGS / f"{name}.parquet")
    evaluate_log(log, columns, tmp_path / "log", Question(1.0, 2.0), scores_out=str(scores))
    found = tree(evaluate(scores, tmp_path / "parts"))
    evaluate_scores(str(scores), epath.Path(tmp_path / "exact"), POINT, running=Running())
    exact = json.loads((tmp_path / "exact" / "evaluation.json").read_text())
    assert found["counts"] == exact["counts"] and found["units"] == exact["units"]
    for mine, theirs in zip(found["policies"], exact["policies"], strict=True):
        for number in ("realised_cost", "realised_low", "difference_high", "speak_rate", "tp", "fp", "fn", "tn"):
            assert (mine[number] or 0) == pytest.approx(theirs[number] or 0, rel=1e-5, abs=1e-7)
    for mine, theirs in zip(found["signals"], exact["signals"], strict=True):
        for number in ("miscalibration", "discrimination"):
            bound = found["bounds"][f"signals.{mine['signal']}_{mine['thinking']}.{mine['form']}.{number}"]
            assert abs(mine[number] - theirs[number]) <= bound
    for mine, theirs in zip(found["ratios"]["rows"], exact["ratios"]["rows"], strict=True):
        if mine["audbc"] is not None:
            assert (
                abs(mine["audbc"] - theirs["audbc"]) <= found["bounds"][f"ratios.{mine['policy']}.{mine['form']}.audbc"]
            )


@pytest.mark.parametrize("damage", ["cut", "values", "lines"])
def test_a_damaged_file_is_named_or_left_out(tmp_path, small_parts, no_tables, capsys, damage):
    scores = scores_of(streams=24, steps=5, slow=False)
    number = scores.numbered("stream")[1]
    paths = [tmp_path / f"part-{i}.parquet" for i in range(3)]
    for i, path in enumerate(paths):
        write(path, scores.take(number % 3 == i))
    bad = paths[1]
    if damage == "cut":
        bad.write_bytes(bad.read_bytes()[:-100])
    elif damage == "values":
        table = pq.read_table(bad)
        p = np.where(np.arange(len(table)) == 33, 1.5, table["p_accept_fast"].to_numpy())
        pq.write_table(table.set_column(table.column_names.index("p_accept_fast"), "p_accept_fast", [p]), bad)
    else:
        bad.unlink()
        bad = tmp_path / "part-1.jsonl"
        write_scores(bad, scores.take(number % 3 == 1))
        bad.write_text(bad.read_text() + '{"stream": 3}\n')
    with pytest.raises(ScoresError, match=f"{bad.name}.*(Parquet|row 33|line 41)"):
        evaluate(tmp_path / "part-*", tmp_path / "out")
    assert not (tmp_path / "out" / "evaluation.json").exists()
    found = tree(evaluate(tmp_path / "part-*", tmp_path / "out", skip_bad=True))
    assert "left out: 1 of 3 files" in capsys.readouterr().out
    assert bad.name in (tmp_path / "out" / "report.html").read_text()
    rest = tmp_path / "rest"
    rest.mkdir()
    for path in paths[::2]:
        path.rename(rest / path.name)
    assert_close(tree(evaluate(rest, tmp_path / "out")), found)


def test_errors_name_the_files_that_were_given(tmp_path, small_parts, capsys):
    """And no temporary one, into which lines or unsorted rows are written."""
    scores = scores_of(streams=24, steps=5, slow=False)
    path = tmp_path / "scores.jsonl"
    write_scores(path, scores)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:7], lines[7].replace('"writing"', '"cooking"'), *lines[8:]]))
    with pytest.raises(ScoresError, match=r"scores\.jsonl, line 8, domain: found 'cooking'"):
        evaluate(path, tmp_path / "out")
    path.write_text("\n".join([*lines, lines[5]]))
    with pytest.raises(ScoresError, match=rf"^{path}: found stream 'stream-1', step 0, candidate 0 a second time"):
        evaluate(path, tmp_path / "out")
    write(tmp_path / "scores.parquet", scores)
    with pytest.raises(ScoresError, match=r"^2 files, .*scores\.jsonl and others: found .* a second time"):
        evaluate(tmp_path / "scores.*", tmp_path / "out", skip_bad=True)
    pq.write_table(pq.read_table(tmp_path / "scores.parquet").slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(ScoresError, match=r"empty\.parquet: found no rows"):
        evaluate(tmp_path / "*.parquet", tmp_path / "out")
    with pytest.raises(ScoresError, match=r"^.*scores\.parquet, logged: found no such column, expected it with"):
        shown = Running(workers=1, most=0)
        out = epath.Path(tmp_path / "out")
        evaluate_scores(str(tmp_path / "scores.parquet"), out, POINT, shown_only=True, running=shown)
    with pytest.raises(FileNotFoundError, match=r"none\.parquet: no such file"):
        evaluate(tmp_path / "none.parquet", tmp_path / "out")
    table = pq.read_table(tmp_path / "scores.parquet")
    pq.write_table(table.drop_columns("domain"), tmp_path / "without.parquet")
    with pytest.raises(ScoresError, match=r"without\.parquet, domain: found no such column, expected the columns of"):
        evaluate(tmp_path / "[sw]*.parquet", tmp_path / "out")
    steps = pa.array(table["step"].to_numpy().astype(np.uint64) + np.uint64(2**63))
    pq.write_table(table.set_column(table.column_names.index("step"), "step", steps), tmp_path / "large.parquet")
    with pytest.raises(ScoresError, match=r"large\.parquet, row 0, step: found 9223372036854775808, expected .*below"):
        evaluate(tmp_path / "large.parquet", tmp_path / "out")


def test_shown_offers_have_a_propensity_in_all_files_or_in_none(tmp_path, small_parts, capsys):
    """Also where no file has both; without any, all weights are 1."""
    scores = scores_of(streams=24, steps=5, slow=False, logging=True)
    first, folder = scores.numbered("stream")[1] < 16, epath.Path(tmp_path / "out")
    second = scores.take(~first)
    write(tmp_path / "a.parquet", scores.take(first))
    write(tmp_path / "b.parquet", dataclasses.replace(second, propensity=np.full(len(second), np.nan)))
    for exact in (True, False):
        running = Running(workers=1, most=None if exact else 0)
        words = "propensity: found null.*, expected a number, as other rows have one"
        with pytest.raises(ScoresError, match=words):
            evaluate_scores(str(tmp_path / "*.parquet"), folder, POINT, shown_only=True, running=running)
    assert not list(folder.iterdir())


def test_columns_in_another_order_can_be_put_together(tmp_path, small_parts, no_tables):
    scores = scores_of(streams=24, steps=5, slow=False)
    write(tmp_path / "one.parquet", scores)
    expected = tree(evaluate(tmp_path / "one.parquet", tmp_path / "out"))
    shuffled = scores.take(np.random.default_rng(3).permutation(len(scores)))
    for i, rows in enumerate(np.array_split(np.arange(len(scores)), 2)):
        path = tmp_path / f"part-{i}.parquet"
        write(path, shuffled.take(rows))
        table = pq.read_table(path)
        pq.write_table(table.select(table.column_names[:: 1 - 2 * i]), path, row_group_size=25)
    assert_close(tree(evaluate(tmp_path / "part-*", tmp_path / "out")), expected, divided=True)


@pytest.mark.parametrize("row", [0, 24, 33, 100, 119])
def test_a_stream_that_is_null_is_named(tmp_path, small_parts, row):
    path = tmp_path / "scores.parquet"
    write(path, scores_of(streams=24, steps=5, slow=False))
    table = pq.read_table(path)
    names = table["stream"].to_pylist()
    names[row] = None
    pq.write_table(table.set_column(0, "stream", [names]), path, row_group_size=25)
    with pytest.raises(ScoresError, match=f"row {row}, stream: found null"):
        list(chunk for part in parts.parts_of(str(path)) for chunk in parts.read_part(part))


def test_small_row_groups_are_read_together(tmp_path, small_parts):
    """A statistic costs the same for each chunk, however few rows it has."""
    path = tmp_path / "scores.parquet"
    write(path, scores_of(streams=24, steps=5, slow=False), group=1)
    sizes = [len(chunk) for part in parts.parts_of(str(path)) for chunk in parts.read_part(part)]
    assert sum(sizes) == 120 and len(sizes) < 8


def cpu_time(pid):
    """Clock ticks that a process has run for."""
    return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the workers in /proc")
@pytest.mark.parametrize("killed", ["worker", "parent"])
def test_processes_end_together(tmp_path, killed):
    """A worker that is killed is reported, even while it sends a result; one whose parent is killed ends, too."""
    scores = scores_of(streams=8000, steps=10, slow=False)
    for i in range(4):
        write(tmp_path / f"part-{i}.parquet", scores.take(scores.numbered("stream")[1] % 4 == i), group=10_000)
    command = [*IN_PARTS, "evaluate", f"--scores={tmp_path}/part-*.parquet", "--workers=2"]
    command += [f"--workdir={tmp_path / 'out'}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        workers = []
        while len(workers) < 2:
            assert process.poll() is None
            time.sleep(0.05)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            workers = [pid for pid in children if b"spawn_main" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        time.sleep(0.2)
        process.send_signal(signal.SIGSTOP)  # a worker whose result nobody takes stops when the pipe is full
        waited, spent = 0, -1
        while waited < 10:
            time.sleep(0.1)
            before, spent = spent, sum(map(cpu_time, workers))
            waited = waited + 1 if spent == before else 0
        os.kill(int(workers[0]) if killed == "worker" else process.pid, signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert killed == "parent" or "--workers: found that one of the processes died" in errors
    end = time.monotonic() + 20
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_folder_that_cannot_be_written_to_is_reported_first(tmp_path, small_parts, monkeypatch):
    write(tmp_path / "scores.parquet", scores_of(streams=24, steps=6, slow=False))
    monkeypatch.setattr(sharded, "state_of", None)
    with pytest.raises(NotADirectoryError):
        evaluate(tmp_path / "scores.parquet", tmp_path / "scores.parquet")


def test_states_of_other_files_or_settings_are_not_used(tmp_path, small_parts, no_tables, monkeypatch):
    path, folder = tmp_path / "scores.parquet", tmp_path / "out"
    write(path, scores_of(streams=24, steps=6, slow=False))
    expected = evaluate(path, tmp_path / "undisturbed")
    monkeypatch.setattr(sharded.Sharded, "finish", lambda self: None)
    evaluate(path, folder)
    write(path, scores_of(seed=1, streams=24, steps=6, slow=False))
    assert evaluate(path, folder) != expected
    write(path, scores_of(streams=24, steps=6, slow=False))
    (folder / ".unfinished" / "scan.npz").write_bytes(b"PK\x03\x04 nothing")
    assert evaluate(path, folder) == expected


def packed(content, save, **more):
    """The same file, whole, with other arrays in it."""
    file = io.BytesIO()
    with np.load(io.BytesIO(content)) as arrays:
        save(file, **(dict(arrays) | more))
    return file.getvalue()


@pytest.fixture
def unfinished(tmp_path):
    """A run on a small file, and the place of its first state."""
    write(tmp_path / "scores.parquet", scores_of(streams=2, steps=2, slow=False))
    running = sharded.Sharded([str(tmp_path / "scores.parquet")], tmp_path)
    running.close()
    return running, tmp_path / "scan.npz"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"PK nothing",
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
        lambda content: content.replace(b"PK\x01\x02", b"PK\x01\x03", 1),
        lambda content: packed(content, np.savez_compressed, more=np.zeros(1 << 20)),  # to 8 MB
        lambda content: packed(content, np.savez, tree=np.frombuffer(b"[[]]", np.uint8)),  # another state
    ],
)
def test_damaged_states_are_made_anew_and_none_unpacks_to_more_than_its_file(damage, unfinished):
    running, place = unfinished
    running._keep(place, 1, {"rows": np.arange(9.0)})
    assert running._unfinished(place)[0] == 1
    place.write_bytes(damage(place.read_bytes()))
    tracemalloc.start()
    try:
        assert running._unfinished(place) == (0, None)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_sigterm_leaves_no_temporary_files(tmp_path, monkeypatch):
    write(tmp_path / "scores.parquet", scores_of(streams=70, steps=6, slow=False))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(sharded, "state_of", lambda *_: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit, match="143"):
            evaluate(tmp_path / "scores.parquet", tmp_path / "out")
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not [*(tmp_path / "temporary").iterdir()]


def test_a_state_of_more_bytes_than_a_short_archive_has_is_read(unfinished, monkeypatch):
    running, place = unfinished
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)  # as beyond 2 GiB
    running._keep(place, 1, {"rows": np.arange(9.0)})
    assert running._unfinished(place)[0] == 1


def test_few_rows_are_evaluated_exactly_and_records_are_never_divided(tmp_path, capsys):
    path = tmp_path / "scores.parquet"
    write(path, scores_of(streams=24, steps=6, slow=False))
    evaluate_scores(str(path), epath.Path(tmp_path / "out"), POINT)
    assert "bounds" not in json.loads((tmp_path / "out" / "evaluation.json").read_text())
    (tmp_path / "records.jsonl").write_text('{"kind": "decision", "format": 1}\n')
    with pytest.raises(ScoresError, match=r"found decision records, .* without --runner=ray"):
        evaluate(tmp_path / "records.jsonl", tmp_path / "out", runner="ray")
    with pytest.raises(ScoresError, match=r"records\.jsonl"):
        evaluate(tmp_path / "records.jsonl", tmp_path / "out")  # in memory, however many there are: this one is cut


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.list_(pa.string()), "stream: found the type list"),
        (pa.null(), "stream: found null, expected a non-empty string"),
    ],
)
def test_a_column_of_text_that_holds_none_is_refused_by_both_paths(tmp_path, kind, words, exact):
    columns = {"stream": pa.nulls(4, kind), "step": pa.array(range(4)), "p_accept_fast": pa.array([0.5] * 4)}
    pq.write_table(pa.table(columns), tmp_path / "scores.parquet")
    with pytest.raises(ScoresError, match=words):
        evaluate_scores(
            str(tmp_path / "scores.parquet"),
            epath.Path(tmp_path / "out"),
            POINT,
            running=Running(workers=1, most=None if exact else 0),
        )
    assert not (tmp_path / "out" / ".unfinished").exists()
