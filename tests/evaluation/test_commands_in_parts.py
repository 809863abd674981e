"""What all commands have in common that read files part by part: workers, interruptions, files that cannot be read."""

import jax
import pyarrow.parquet as pq
import pytest
from in_parts import ROLES, ask, evaluate, in_parts, simulated, write
from paper_study import columns, made
from synthetic_scores import POINT, make_scores
from test_counterfactual_in_parts import table
from test_promises import table as judged

from prism_jax.experiments.paper import drawing
from prism_jax.runs import sharded
from prism_jax.runs.promising import promise_scores
from prism_jax.runs.running import Running
from prism_jax.scores import Scores


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".html"}


def of_log(pattern, folder, **running):
    in_parts(pattern, f"{ROLES},score=p,answered=later", folder, **running)
    return content(folder)


def tables(pattern, folder, **running):
    return made(pattern, folder, ("inference", "drift"), **running)


def promised(pattern, folder, **running):
    folder.mkdir(exist_ok=True)
    running = Running(**{"workers": 1, "most": 0} | running)
    promise_scores(str(pattern), ["false_alarms<=0.2"], POINT, level=0.9, out=str(folder / "out.json"), running=running)
    return content(folder)


COMMANDS = {
    "scores": (evaluate, lambda path: write(path, make_scores(streams=60, steps=6, slow=False))),
    "log": (of_log, lambda path: pq.write_table(simulated(), path)),
    "counterfactual": (ask, lambda path: write(path, table())),
    "tables": (tables, lambda path: write(path, Scores.from_columns(columns(seed=6)))),
    "promise": (promised, lambda path: write(path, judged(units=40))),
}
SLOW = {name: pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS}


@pytest.fixture
def command(name, tmp_path, monkeypatch):
    """A command, and the folder with its file."""
    monkeypatch.setattr(drawing, "can_draw", lambda: False)
    monkeypatch.setattr("prism_jax.evaluation.answers.parts.FOLDS", 3)
    run, write_to = COMMANDS[name]
    (tmp_path / "source").mkdir()
    write_to(tmp_path / "source" / "a.parquet")
    return run, tmp_path / "source"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scores", "log", "counterfactual", "tables"])
def test_the_number_of_workers_changes_no_byte(command, tmp_path, monkeypatch):
    run, source = command
    # Processes that are started compile as this one does, and know nothing of other settings.
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(jax.config.values["jax_disable_most_optimizations"]))
    monkeypatch.setattr("prism_jax.scores.parts.PART_ROWS", 90)
    monkeypatch.setattr("prism_jax.runs.answers.PART_ROWS", 128)
    assert run(source, tmp_path / "one") == run(source, tmp_path / "two", workers=2)


@pytest.mark.parametrize("name", [SLOW["scores"], SLOW["log"], "counterfactual", SLOW["tables"]])
def test_what_was_interrupted_goes_on(command, tmp_path, small_parts, monkeypatch):
    """At several parts of several statistics; what is merged already is not read again, and no byte differs."""
    (run, source), read, state_of = command, [], sharded.state_of

    class Killed(BaseException):
        pass

    def counted(part, work):
        read.append(type(work.statistic).__name__)
        if len(read) == stop:
            raise Killed
        return state_of(part, work)

    monkeypatch.setattr(sharded, "state_of", counted)
    stop = -1
    expected, whole = run(source, tmp_path / "undisturbed"), len(read)
    assert whole >= 8
    for stop in (whole - 3,) if run is ask else (2, 8, whole // 2, whole):
        read.clear()
        folder = tmp_path / f"killed at {stop}"
        with pytest.raises(Killed):
            run(source, folder)
        assert (folder / ".unfinished").is_dir()
        assert run is tables or len(list(folder.iterdir())) == 1
        stop = -1
        assert run(source, folder) == expected
        assert len(read) == whole + 1  # the part at which it ended is read again
        assert not (folder / ".unfinished").exists()


@pytest.mark.parametrize("most", [0, None])
@pytest.mark.parametrize("name", [SLOW["counterfactual"], "tables", "promise"])
def test_a_file_that_cannot_be_read_is_left_out_where_asked_and_named(command, tmp_path, small_parts, capsys, most):
    run, source = command
    expected = run(source, tmp_path / "whole")
    (source / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"b\.parquet"):
        run(source, tmp_path / "out", most=most)
    capsys.readouterr()
    found = run(source, tmp_path / "out", most=most, skip_bad=True)
    assert found.keys() == expected.keys()
    printed = capsys.readouterr().out
    assert "left out: 1 of 2 files" in printed and "b.parquet" in printed
