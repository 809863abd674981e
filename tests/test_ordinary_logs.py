"""The whole path of a log as products keep them: odd names of columns, unshown rows, scores from 0 to 10."""

import json

import forked
import numpy as np
import pytest

COLUMNS = "person=User ID,time=Shown at,score=Confidence (0-10),accepted=Taken?"
LOGGED = f"{COLUMNS},logged=Was it shown?"
PEOPLE, ROWS = 12, 600


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """600 offers to 12 people, one in twelve not shown; acceptance rises with the score and differs by person."""
    rng = np.random.default_rng(7)
    person, score = rng.integers(0, PEOPLE, ROWS), np.round(rng.uniform(0, 10, ROWS), 1)
    own = rng.normal(0, 0.8, PEOPLE)
    taken = rng.random(ROWS) < 1 / (1 + np.exp(-(0.6 * (score - 6.5) + own[person])))
    shown = np.arange(ROWS) % 12 != 5
    lines = ['User ID,"Session, nr",Shown at,Confidence (0-10),Was it shown?,Taken?']
    for i in range(ROWS):
        answer = ("yes" if taken[i] else "no") if shown[i] else ""
        time = f"2025-03-{1 + i // 40:02d} {8 + i % 12:02d}:{i % 60:02d}:00"
        lines.append(f"user-{person[i]:03d}@mail,{i},{time},{score[i]},{'yes' if shown[i] else 'no'},{answer}")
    path = tmp_path_factory.mktemp("ordinary") / "offers export.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(module, *given, cwd):
    done = forked.run(f"prism_jax.{module}", *given, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def test_a_log_with_unshown_rows_is_evaluated_on_the_shown_ones_where_asked(log, tmp_path):
    given = (f"--scores={log}", f"--workdir={tmp_path / 'out'}")
    code, _, error = run("evaluate", *given, f"--columns={COLUMNS}", cwd=tmp_path)
    assert code == 1 and "logged=COLUMN" in error and "--shown_only" in error
    code, _, error = run("evaluate", *given, f"--columns={LOGGED}", cwd=tmp_path)
    assert code == 1 and "found 50 of 600 offers that were not made" in error and "--shown_only" in error
    code, _, error = run("evaluate", *given, f"--columns={COLUMNS}", "--shown_only", cwd=tmp_path)
    assert code == 1 and "logged=COLUMN" in error
    assert not (tmp_path / "out").exists()
    code, printed, error = run("evaluate", *given, f"--columns={LOGGED}", "--shown_only", cwd=tmp_path)
    assert code == 0, error
    assert "of shown offers only" in printed
    value = json.loads((tmp_path / "out" / "acceptance_log.json").read_text())
    assert value["log"]["answers"] == value["log"]["rows"] == 550 and value["log"]["not_made"] == 50
