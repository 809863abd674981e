"""The index of several runs: its numbers are those of their evaluations, and its links lead to their reports."""

import html
import pathlib
import re
import shutil
import urllib.parse

import forked
import pytest
from synthetic_scores import POINT, make_scores

from prism_jax.commands.report import write_index
from prism_jax.report.numbers import number, percent
from prism_jax.report.outputs import evaluate_into

ROOT = pathlib.Path(__file__).parents[2]
HOSTILE = "a b<img src=x>&'"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two folders of runs, one with a hostile name, and the evaluation of both."""
    folder = tmp_path_factory.mktemp("runs")
    evaluation = evaluate_into(folder / "first", make_scores(streams=12), POINT, facts={}, keep_scores=False)
    shutil.copytree(folder / "first", folder / HOSTILE)
    return folder, evaluation


def test_rows_hold_the_numbers_of_the_evaluations_and_links_lead_to_the_reports(runs):
    folder, evaluation = runs
    names = [str(folder / "first"), str(folder / HOSTILE)]
    table = write_index(folder / "index.html", names)
    (section,) = table.sections
    row = evaluation.deployed
    for one in section.rows:
        cells = dict(zip([column.label for column in table.columns], one.cells, strict=True))
        assert cells["realised cost"].startswith(number(row.realised_cost))
        assert (cells["offers"], cells["recall"]) == (percent(row.speak_rate), percent(row.recall))
        assert cells["steps"] == str(evaluation.counts.judged)
    assert "same costs" in table.note
    source = (folder / "index.html").read_text()
    links = [html.unescape(link) for link in re.findall(r'href="([^"]*)"', source)]
    assert [folder / urllib.parse.unquote(link) for link in links] == [
        folder / "first" / "report.html",
        folder / HOSTILE / "report.html",
    ]
    assert "<img" not in source and "<script" not in source and "default-src &#39;none&#39;" in source


def test_runs_at_other_costs_are_not_called_comparable(runs):
    folder, _ = runs
    other = folder / "other"
    shutil.copytree(folder / "first", other)
    text = (other / "evaluation.json").read_text()
    (other / "evaluation.json").write_text(text.replace('"c_fn": 2.0', '"c_fn": 3.0', 1))
    assert "not comparable" in write_index(folder / "two.html", [str(folder / "first"), str(other)]).note


def test_a_folder_that_is_no_run_is_refused_and_leaves_no_page(runs, tmp_path):
    folder, _ = runs
    page = tmp_path / "index.html"
    first = str(folder / "first")
    with pytest.raises(FileNotFoundError, match=r"evaluation\.json: no such file"):
        write_index(page, [first, str(tmp_path)])
    with pytest.raises(ValueError, match=r"found .*first twice, expected each folder once"):
        write_index(page, [first, first])
    with pytest.raises(ValueError, match=r"--out: found .*report.html, the file of --runs, expected another one"):
        write_index(folder / "first" / "report.html", [first])
    broken = tmp_path / "broken"
    shutil.copytree(first, broken)
    (broken / "evaluation.json").write_text('{"policies": []}')
    with pytest.raises(ValueError, match=r"evaluation\.json: found ValueError no deployed policy while reading"):
        write_index(page, [str(broken)])
    assert not page.exists()


@pytest.mark.slow
def test_the_command_prints_the_table_and_names_what_is_missing(runs, tmp_path):
    folder, evaluation = runs

    def run(flag):
        return forked.run("prism_jax", "report", f"--out={tmp_path / 'index.html'}", flag, cwd=tmp_path)

    done = run(f"--runs={folder / 'first'}")
    assert done.returncode == 0, done.stderr
    assert number(evaluation.deployed.realised_cost) in done.stdout
    failed = run(f"--runs={tmp_path / 'nowhere'}")
    assert failed.returncode == 1 and "nowhere/evaluation.json: no such file" in failed.stderr
    assert failed.stderr.count("\n") == 1
