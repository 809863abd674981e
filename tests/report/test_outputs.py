"""Writing an evaluation: the folder holds all files of one evaluation, or is unchanged."""

import io
import json
from contextlib import redirect_stdout

import pytest
from synthetic_scores import POINT, changed, make_scores

from prism_jax.evaluation import protocol
from prism_jax.evaluation.fits import read_calibration
from prism_jax.report import tables
from prism_jax.report.outputs import evaluate_into
from prism_jax.scores import read_scores

FILES = ("calibration.json", "evaluation.json", "gate.json", "report.html", "scores.parquet")


def run(folder, scores, **more):
    with redirect_stdout(io.StringIO()):
        return evaluate_into(folder, scores, POINT, facts={"command": "run me"}, **{"keep_scores": True, **more})


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_folder_holds_the_evaluation(tmp_path):
    scores, folder = make_scores(), tmp_path / "new" / "folder"
    evaluation = run(folder, scores)
    assert sorted(content(folder)) == sorted(FILES)
    assert read_calibration(folder / "calibration.json") == protocol.calibrate(scores)
    assert json.loads((folder / "evaluation.json").read_bytes()) == evaluation.to_dict()
    assert read_scores(folder / "scores.parquet").columns().keys() == scores.columns().keys()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "run me" in page and tables.ratio_table(evaluation).note in page
    bare = tmp_path / "bare"
    run(bare, scores, keep_scores=False)
    assert {**content(bare), "scores.parquet": b""} == {**content(folder), "scores.parquet": b""}


def test_absent_metrics_leave_the_curves_out(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    run(tmp_path / "without", make_scores(), metrics_path=metrics)
    metrics.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n')
    run(tmp_path / "with", make_scores(), metrics_path=metrics)
    headings = ["<h2>Training</h2>" in (tmp_path / name / "report.html").read_text() for name in ("without", "with")]
    assert headings == [False, True]


@pytest.mark.parametrize("cut", [b'{"step": 1, "loss": 2.0}\n{"step": 2, "lo', b'{"step": 1, "\xc3'])
@pytest.mark.parametrize("before", [False, True])
def test_metrics_that_are_cut_short_change_nothing(tmp_path, cut, before):
    metrics, folder = tmp_path / "metrics.jsonl", tmp_path / "run"
    if before:
        run(folder, make_scores())
        old = content(folder)
    metrics.write_bytes(cut)
    with pytest.raises(ValueError, match=r"metrics.jsonl, line \d: found (broken JSON|byte 0xc3)"):
        run(folder, make_scores(seed=1), metrics_path=metrics)
    if before:
        assert content(folder) == old
    else:
        assert not folder.exists()


def test_scores_without_a_test_label_change_nothing(tmp_path):
    scores = make_scores()
    with pytest.raises(ValueError, match="found no step with both y_need and y_accept"):
        run(tmp_path / "run", changed(scores, scores.split == "test", y_need=float("nan")))
    assert list(tmp_path.iterdir()) == []
