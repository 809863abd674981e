"""The main that curates a file: the rows that training would keep, a mark, and a summary that adds up."""

import collections
import dataclasses
import hashlib
import json

import pytest
from absl import flags
from absl.testing import flagsaver

from prism_jax.commands import curate
from prism_jax.runs.curation import curate_file, summary_path, table_of
from prism_jax.streams.edit import map_steps
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.pathways.curated import OUTCOMES
from prism_jax.training.pathways.curated import curate as curate_streams

STREAMS = [simulate(SimulatorConfig(teacher=True, teacher_blur=1.0), index) for index in range(12)]


@pytest.fixture
def file(tmp_path):
    """A file of labelled streams; the first step of the first has no need label, that of the second no teacher."""

    def cut(stream, **changes):
        flags_left = iter([True, *[False] * len(stream.steps)])
        return map_steps(stream, lambda step: dataclasses.replace(step, **(changes if next(flags_left) else {})))

    streams = [cut(STREAMS[0], y_need=None), cut(STREAMS[1], teacher_need=None), *STREAMS[2:]]
    write_streams(tmp_path / "teacher.jsonl", streams)
    return tmp_path / "teacher.jsonl"


@pytest.mark.parametrize("score", ["default", "paper"])
@pytest.mark.parametrize("stratify", [True, False])
@pytest.mark.parametrize("size", [{"keep": 0.3}, {"count": 7}])
def test_the_file_holds_what_a_pathway_would_keep(file, score, stratify, size):
    pathway = PathwayConfig(name="rdc_sft", score=score, stratify=stratify, **size)
    found = curate_file(file, file.with_name("out.jsonl"), pathway)
    assert tuple(read_streams(file.with_name("out.jsonl"))) == found.streams
    assert found == curate_streams(read_streams(file), pathway)
    assert all(stream.curated for stream in found.streams)


def test_the_summary_adds_up_and_names_the_file_by_its_digest(file):
    out = file.with_name("out.jsonl")
    found = curate_file(file, out, PathwayConfig(keep=0.3))
    summary = json.loads(summary_path(out).read_text())
    rows = collections.Counter()
    for count in summary["rows"]:
        rows[count["outcome"]] += count["rows"]
    assert set(rows) == set(OUTCOMES)
    assert rows["need not judged"] == rows["no teacher probability"] == 1
    assert sum(rows.values()) == summary["read"]["rows"] == sum(len(stream.steps) for stream in STREAMS)
    written = read_streams(out)
    assert rows["kept"] == summary["written"]["rows"] == sum(len(stream.steps) for stream in written)
    assert summary["written"]["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert summary["choices"] == {"keep": 0.3, "count": 0, "score": "default", "stratify": True}
    before, after = summary["teacher_brier_before_after"]["need"]
    assert after < before
    cells = [[int(cell) for cell in row.cells] for section in table_of(found).sections for row in section.rows]
    assert [sum(column) for column in zip(*cells[:-1], strict=True)] == cells[-1] == [rows[name] for name in OUTCOMES]


def test_the_flags_choose_the_rows(file, capsys):
    out = file.with_name("out.jsonl")
    if "streams" not in flags.FLAGS:
        curate.define_flags()
    argv = ["curate", f"--streams={file}", f"--out={out}", "--count=9", "--method=paper"]
    with flagsaver.flagsaver():
        flags.FLAGS(argv)
        curate.main()
    expected = curate_streams(read_streams(file), PathwayConfig(count=9, score="paper", stratify=False))
    assert tuple(read_streams(out)) == expected.streams
    assert f"curated: {out}, summary: {summary_path(out)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 999}, r"teacher.jsonl: --count: found 999, expected at most the \d+ rows that have a need label"),
        ({"out": "teacher.jsonl"}, "--out: found .*teacher.jsonl, the file of --streams, expected another one"),
        ({"out": "none/out.jsonl"}, "none/out.jsonl: found no folder .*none, expected an existing one"),
        ({"streams": "none.jsonl"}, "none.jsonl: no such file, expected JSON lines"),
    ],
)
def test_what_cannot_be_curated_is_one_line_and_leaves_older_files_as_they_are(file, change, message):
    given = {"streams": "teacher.jsonl", "out": "out.jsonl", "count": 3} | change
    curate_file(file, file.with_name("out.jsonl"), PathwayConfig(keep=0.3))
    before = {path: path.read_bytes() for path in file.parent.iterdir()}
    with pytest.raises((ValueError, OSError), match=message):
        curate_file(file.parent / given["streams"], file.parent / given["out"], PathwayConfig(count=given["count"]))
    assert {path: path.read_bytes() for path in file.parent.iterdir()} == before


def test_a_file_is_curated_once(file):
    out = file.with_name("out.jsonl")
    curate_file(file, out, PathwayConfig(keep=0.3))
    with pytest.raises(ValueError, match=r"out.jsonl: data: found \d+ of \d+ streams curated already"):
        curate_file(out, file.with_name("again.jsonl"), PathwayConfig(keep=0.3))
    assert not file.with_name("again.jsonl").exists()
