"""The files of the paper's tables on a scores file: all formats, constant bytes, and scores that lack something."""

import csv
import io
import json
import math
import re

import numpy as np
import pytest
from etils import epath
from paper_study import ON_SCORES, cells, columns, given_of, study_of

from prism_jax.experiments.paper import drawing, registry, runner
from prism_jax.experiments.paper.sheet import NOT_REPRODUCIBLE

pytestmark = pytest.mark.slow


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(drawing, "can_draw", lambda: False)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files of all experiments on one scores file, written twice; the second time with one figure only."""
    folder = epath.Path(tmp_path_factory.mktemp("tables"))
    for place in ("one", "two"):
        given = given_of(columns(), folder / "scores")
        runner.run_experiments(ON_SCORES if place == "one" else ("case_study",), given, folder / place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "can_draw", lambda: False)
        runner.run_experiments([name for name in ON_SCORES if name != "case_study"], given, folder / "two")
    return folder


def test_files_are_written_for_every_table_and_have_the_same_bytes_twice(written):
    one, two = ({path.name: path.read_bytes() for path in (written / place).iterdir()} for place in ("one", "two"))
    assert two.keys() == {name for name in one if not name.endswith((".svg", ".png")) or name.startswith("case_study")}
    for name in ON_SCORES:
        files = set(json.loads(one[f"{name}.json"])["files"])
        stem = name.replace("methods", "method")  # a sheet has a name of its own
        assert files <= one.keys() and {f"{stem}.{kind}" for kind in ("csv", "md", "tex")} <= files
        assert {f"{name}.svg", f"{name}.png"} <= files
    for name, content in two.items():
        assert content == one[name] or name.endswith(".json") or name == "tables.md", name
        assert not re.search(r"latency|second", name), "no table of scores has seconds"
    page = one["tables.md"].decode()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == list(ON_SCORES)
    assert all(one[name].decode() in page for name in one if name.endswith(".md") and name != "tables.md")
    assert json.loads(one["main.json"])["sha256"] == json.loads(two["main.json"])["sha256"]


def test_csv_has_numbers_ends_and_the_papers_numbers_with_their_status(written):
    rows = list(csv.DictReader(io.StringIO((written / "one" / "inference.csv").read_text())))
    row = next(row for row in rows if row["strategy"] == "slow on margin")
    assert float(row["f1_low"]) <= float(row["f1"]) <= float(row["f1_high"])
    assert (row["f1_paper"], row["tokens_paper"]) == ("0.8815", "541")
    assert row["paper_status"] == NOT_REPRODUCIBLE
    main = csv.DictReader(io.StringIO((written / "one" / "main.csv").read_text()))
    assert {row["paper_status"] for row in main} == {"", NOT_REPRODUCIBLE}


def test_latex_has_booktabs_rules_and_no_bare_greek(written):
    for path in (written / "one").glob("*.tex"):
        text = path.read_text(encoding="utf-8")
        assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
        assert text.isascii() or not re.search("[α-ω≤≥±−▸]", text), path.name


WITHOUT = {
    "a slow pass": (lambda: columns(slow=False), {"inference", "margin_sweep", "cost_margin_grid", "pareto"}),
    "tokens": (lambda: {k: v for k, v in columns().items() if not k.startswith("tokens")}, {"pareto"}),
    "the truth": (lambda: {k: v for k, v in columns().items() if not k.endswith("_true")}, set()),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_what_is_missing_skips_by_name_what_needs_it(what, tmp_path, capsys, no_figures):
    values, skipped = WITHOUT[what]
    made = runner.run_experiments(ON_SCORES, given_of(values(), tmp_path), epath.Path(tmp_path))
    assert set(ON_SCORES) - set(made) == skipped
    lines = re.findall(r"^skipped (\w+): (.+)$", capsys.readouterr().out, re.MULTILINE)
    assert {name for name, _ in lines} == skipped and all("column" in reason for _, reason in lines)


def test_one_stream_gives_numbers_without_intervals(tmp_path, no_figures):
    values = columns()
    test = np.array(values["split"]) == "test"
    values["stream"] = np.where(test, "only", values["stream"]).tolist()
    values["domain"] = np.where(test, "coding", values["domain"]).tolist()
    values["step"] = np.where(test, np.cumsum(test), values["step"])
    values.pop("time")
    study = study_of(values)
    made = runner.run_experiments(ON_SCORES, given_of(values, tmp_path), epath.Path(tmp_path))
    assert set(ON_SCORES) - set(made) == {"significance"}
    (line,) = [line for line in registry.function("main")(study).sheets[0].lines if line.name == "gate"]
    assert math.isnan(line.cells["f1"].low) and line.cells["f1"].value > 0


def test_a_single_class_on_the_test_split_leaves_undefined_cells(tmp_path, no_figures):
    values = columns()
    values["y_accept"] = np.where(np.array(values["split"]) == "test", 0.0, values["y_accept"])
    study = study_of(values)
    runner.run_experiments(ON_SCORES, given_of(values, tmp_path), epath.Path(tmp_path))
    found = cells(registry.function("mechanism")(study).sheets[0], "both, calibrated")
    assert math.isnan(found["audbc"].value) and math.isnan(found["recall"].value) and found["precision"].value == 0
