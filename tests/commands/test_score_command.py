"""`python -m prism_jax score`: the scores of an evaluation, in shards that a run finishes whatever ended it before."""

import concurrent.futures
import dataclasses
import json
import os
import shutil
import sys

import forked
import numpy as np
import pytest
import tiny_export
from etils import epath

from prism_jax.agent.exported import read_exported
from prism_jax.agent.loading import load_student
from prism_jax.commands import score
from prism_jax.runs import many_streams, workers
from prism_jax.runtime.digests import write_digests
from prism_jax.runtime.lock import only_one
from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.scores.joining import read_all
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_candidates, without_answers
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.shards import ShardSettings, cut, find_files
from prism_jax.student import dispatch
from prism_jax.student.scoring.fast import score_streams
from prism_jax.student.scoring.passes import Passes, Scored, score_passes
from prism_jax.student.scoring.responses import with_responses


@pytest.fixture(scope="module")
def exported(tmp_path_factory, template, model, draw_params):
    return tiny_export.export(tmp_path_factory.mktemp("tiny"), template, model, draw_params(model))


@pytest.fixture(scope="module")
def writing(exported, tmp_path_factory):
    """The same student, as one that was trained to write responses, of few tokens."""
    folder = epath.Path(shutil.copytree(exported, tmp_path_factory.mktemp("writing") / "model"))
    prism = json.loads((folder / "prism.json").read_text())
    prism |= {"responses": True, "writing": {"response_tokens": 3}}
    (folder / "prism.json").write_text(json.dumps(prism))
    write_digests(folder)
    return folder


@pytest.fixture
def files(tmp_path, with_two_offers):
    """A folder with two files of streams, 5 and 4."""
    folder = tmp_path / "streams"
    folder.mkdir()
    for number, part in enumerate((with_two_offers[:5], with_two_offers[5:9])):
        write_streams(folder / f"{number}.jsonl", part)
    return folder


READING = {"workers": 1, "runner": "local", "skip_bad": False, "fast_only": False, "reread": False, "split": "test"}
DEFAULTS = READING | dict.fromkeys(("expect_digest", "context", "compilation_cache"))
DEFAULTS |= dict.fromkeys(("dtype", "compute"), "float32")


def run(model, streams, out, **options):
    """Runs the command with four streams per shard, and two per forward pass."""
    paths = {"model": str(model), "streams": str(streams), "workdir": str(out)}
    score.score({**DEFAULTS, **paths, "shard": 4, "batch": 2, **options})


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_shards_hold_what_an_evaluation_would(exported, files, tmp_path, with_two_offers, capsys):
    run(exported, files, tmp_path / "out", split="calibration")
    assert "scored: 9 streams, " in capsys.readouterr().out
    tables = [read_scores(tmp_path / "out" / f"scores-{number:05d}.parquet") for number in range(3)]
    student = load_student(exported, read_exported(exported), "float32")
    scored = score_passes(
        student, with_two_offers[:9], Passes(), split="calibration", fold=0, context=2048, batch=2
    )  # in one call, with other padding
    expected = Scores.from_rows(scored.rows)
    for name, column in expected.columns().items():
        found = np.concatenate([table.columns()[name] for table in tables])
        if name.startswith("p_") and name.endswith("_fast"):
            np.testing.assert_allclose(found, column, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, column, name)
    assert [len(set(table.stream)) for table in tables] == [4, 4, 1]
    assert all(table.columns().keys() == expected.columns().keys() for table in tables)
    facts = json.loads((tmp_path / "out" / "score.json").read_text())
    assert facts["complete"] and facts["streams"] == 9 and facts["decisions"] == len(expected)
    assert facts["model"]["sha256"] == read_exported(exported).fingerprints["model"]
    assert not list((tmp_path / "out").glob("*.lock"))


def test_the_command_reads_its_flags_and_counts_streams(exported, files, tmp_path):
    arguments = [f"--model={exported}", f"--streams={files}/*.jsonl", f"--workdir={tmp_path / 'out'}", "--shard=4"]
    done = forked.run("prism_jax", "score", *arguments, "--batch=2", "--fast_only")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("scored: 9 streams, ")
    assert "streams: 100%" in done.stderr and "9/9" in done.stderr
    assert sorted(content(tmp_path / "out")) == ["score.json", *(f"scores-0000{number}.parquet" for number in range(3))]
    refused = forked.run("prism_jax", "score", *arguments, "--split=train")
    assert refused.returncode == 1
    assert "settings.split: found 'test', expected 'train'" in refused.stderr


def cut_off(monkeypatch):
    """Lets the disk be full while the second table is written; returns the growing list of the tables' names."""
    calls, write = [], many_streams.write_scores

    def write_or_fail(path, scores):
        calls.append(path.name)
        if len(calls) == 2:
            path.with_name(f".{path.name}.0.partial").write_bytes(b"half")
            raise OSError("the disk is full")
        write(path, scores)

    monkeypatch.setattr(many_streams, "write_scores", write_or_fail)
    return calls


def test_what_is_finished_stays_and_what_was_cut_off_is_made(exported, files, tmp_path, monkeypatch):
    run(exported, files, tmp_path / "whole")
    calls = cut_off(monkeypatch)
    with pytest.raises(OSError, match="the disk is full"):
        run(exported, files, tmp_path / "out")
    assert not json.loads((tmp_path / "out" / "score.json").read_text())["complete"]
    run(exported, files, tmp_path / "out")
    run(exported, files, tmp_path / "out")
    assert calls == [f"scores-0000{number}.parquet" for number in (0, 1, 1, 2)], "nothing is scored again"
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_shard_that_is_not_as_it_was_written_is_named_and_made_anew(exported, files, tmp_path, caplog):
    out = tmp_path / "out"
    run(exported, files, out)
    whole = content(out)
    first, second, third = sorted(out.glob("scores-*"))
    changed = read_scores(first)
    write_scores(first, dataclasses.replace(changed, p_accept_fast=changed.p_accept_fast / 2))
    second.write_bytes(whole[first.name])  # with as many streams
    third.write_bytes(b"")
    run(exported, files, out)
    assert content(out) == whole
    for path, message in zip((first, second, third), caplog.messages, strict=True):
        assert message == f"{path}: found other bytes than were written; it is scored anew"


def test_a_shard_whose_digest_a_kill_left_unsaid_is_known_by_its_streams(exported, files, tmp_path, caplog):
    out = tmp_path / "out"
    run(exported, files, out)
    whole = content(out)
    first, second, third = sorted(out.glob("scores-*"))
    facts = json.loads((out / "score.json").read_text())
    assert sorted(facts.pop("files")) == [first.name, second.name, third.name]
    (out / "score.json").write_text(json.dumps(facts))
    second.write_bytes(whole[first.name])
    third.write_bytes(whole[third.name][:-40])
    kept = first.stat()
    run(exported, files, out)
    assert content(out) == whole and first.stat().st_mtime_ns == kept.st_mtime_ns
    problems = "found other streams than the 4 of its shard", "found no readable Parquet"
    for path, problem, message in zip((second, third), problems, caplog.messages, strict=True):
        assert message.startswith(f"{path}: {problem}") and message.endswith("; it is scored anew")


def test_a_folder_is_unfinished_while_a_shard_is_made_anew(exported, files, tmp_path, monkeypatch):
    out = tmp_path / "out"
    run(exported, files, out)
    (out / "scores-00001.parquet").write_bytes(b"")
    monkeypatch.setattr(many_streams, "score_passes", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(exported, files, out)
    assert not json.loads((out / "score.json").read_text())["complete"]
    assert not (out / "scores-00001.parquet").exists()


def test_the_same_streams_are_known_however_their_paths_are_spelled(exported, files, tmp_path, monkeypatch):
    run(exported, files, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    run(exported, "streams/*.jsonl", tmp_path / "out")
    write_streams(files / "0.jsonl", read_streams(files / "0.jsonl")[::-1])
    with pytest.raises(ValueError, match=r"inputs\[0\].sha256: found"):
        run(exported, "streams", tmp_path / "out")


def test_what_cannot_start_claims_no_folder(exported, files, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match="--runner: found no library ray"):
        run(exported, files, out, runner="ray")
    assert not out.exists()
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(many_streams, "score_passes", lambda *_, **__: 1 / 0)
        run(exported, files, out, shard=5)
    assert list(content(out)) == ["score.json"]
    run(exported, files, out)  # no shard of the other run is there


def test_a_folder_for_scores_that_holds_something_else_is_refused(exported, files, tmp_path, monkeypatch):
    (tmp_path / "notes").write_text("")
    monkeypatch.chdir(tmp_path)
    before = content(exported), content(files)
    for out, problem in [
        ("notes", "found a file at notes, expected a folder"),
        (exported, "in the folder of --model, expected one outside it"),
        (os.path.relpath(exported / "scores"), "in the folder of --model, expected one outside it"),
        ("streams", "found streams, the folder of --streams"),
    ]:
        with pytest.raises(ValueError, match=f"^--workdir: found .*{problem.removeprefix('found ')}"):
            run(exported, files, out)
    assert (content(exported), content(files)) == before


def test_every_worker_process_ends_with_its_parent(monkeypatch):
    """Also the one that counts the devices."""
    begun = []

    class Pool(concurrent.futures.ThreadPoolExecutor):
        def __init__(self, number, context, begin=None, arguments=()):
            begun.append(begin)
            super().__init__(number)

    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(workers, "_LOADED", [])
    assert sorted(workers.in_processes(lambda: str, [3, 4], 2)) == [3, 4]
    assert begun == [workers.end_with_parent, workers._begin]


def test_a_folder_of_other_scores_is_refused(exported, files, tmp_path, template, model, draw_params, monkeypatch):
    monkeypatch.setattr(dispatch, "processor_features", lambda: "flags : fpu avx512_bf16")
    out = tmp_path / "out"
    run(exported, files, out)
    before = content(out)
    (tmp_path / "other").mkdir()
    other = tiny_export.export(tmp_path / "other", template, model, draw_params(model, 1))
    for arguments, key in [
        ((other, files), r"model.sha256: found '\w{64}', expected '\w{64}'"),
        ((exported, files / "0.jsonl"), "streams: found 9, expected 5"),
        ((exported, files, {"batch": 3}), "settings.batch: found 2, expected 3"),
        ((exported, files, {"dtype": "bfloat16"}), "model.dtype: found 'float32', expected 'bfloat16'"),
        ((exported, files, {"compute": "bfloat16"}), "model.compute: found nothing, expected 'bfloat16'"),
    ]:
        model_folder, streams, *changes = arguments
        with pytest.raises(ValueError, match=rf"^{out}/score.json: {key}: the folder holds scores of another"):
            run(model_folder, streams, out, **dict(*changes))
    text = (files / "1.jsonl").read_text()
    (files / "1.jsonl").write_text(text.replace("Tea?", "Cake?"))
    with pytest.raises(ValueError, match=r"score.json: inputs\[1\].sha256: found"):
        run(exported, files, out)
    assert content(out) == before
    (out / "score.json").unlink()
    with pytest.raises(ValueError, match=r"scores-00000.parquet: found scores without score.json, expected an empty"):
        run(exported, files, out)


def test_products_in_bfloat16_are_refused_where_the_processor_has_none(exported, files, tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "processor_features", lambda: "flags : fpu avx512f")
    message = r"^student.compute \(--compute\): found 'bfloat16', which can't run here: the features of this processor"
    with pytest.raises(ValueError, match=message):
        run(exported, files, tmp_path / "out", compute="bfloat16")
    with pytest.raises(ValueError, match=message):
        load_student(exported, read_exported(exported), "float32", "bfloat16")
    assert not (tmp_path / "out").exists()


def test_bad_streams_are_found_before_anything_is_scored_or_left_out_as_a_file(exported, files, tmp_path, capsys):
    run(exported, files / "1.jsonl", tmp_path / "without")
    (files / "0.jsonl").write_text((files / "0.jsonl").read_text()[:-30])
    with pytest.raises(ValueError, match=r"0.jsonl:5: found broken JSON"):
        run(exported, files, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    capsys.readouterr()
    run(exported, files, tmp_path / "out", skip_bad=True)
    assert f"left out: 1 of 2 files\n  {files}/0.jsonl:5: found broken JSON" in capsys.readouterr().out
    (problem,) = json.loads((tmp_path / "out" / "score.json").read_text())["left_out"]
    assert problem.startswith(f"{files}/0.jsonl:5: found broken JSON")
    shard = "scores-00000.parquet"
    assert content(tmp_path / "out")[shard] == content(tmp_path / "without")[shard]


def test_a_stream_that_does_not_fit_is_named_with_its_place(exported, files, tmp_path):
    with pytest.raises(ValueError, match=rf"^{files}/0.jsonl:1: stream '.*', steps\[0\]: found \d+ tokens up to"):
        run(exported, files, tmp_path / "out", context=40)
    assert not (tmp_path / "out").exists()


def test_one_process_scores_into_a_folder_at_a_time(exported, files, tmp_path):
    out = epath.Path(tmp_path) / "out"
    with only_one(out, "scoring"), pytest.raises(RuntimeError, match="out: found a scoring of process"):
        run(exported, files, out)


def test_shards_without_rationales_have_the_columns_of_those_with(exported, files, tmp_path, monkeypatch):
    """A student with a slow pass, whose streams have no fields to compare with."""
    fast = {"stream": "a", "step": 0, "candidate": 0, "p_need_fast": 0.5, "p_accept_fast": 0.5}
    slow = {"p_need_slow": 0.5, "p_accept_slow": 0.5, "tokens_slow": 3}
    monkeypatch.setattr(many_streams, "score_passes", lambda *_, **__: Scored(iter([fast | slow]), []))
    settings = ShardSettings(context=2048)
    student = load_student(exported, read_exported(exported), "float32")
    scorer = many_streams.ShardScorer(student, Passes(slow=True), settings, "given_accept", tmp_path)
    monkeypatch.setattr(many_streams, "_unpacked", lambda: ())
    scorer(cut(find_files(str(files)), 9, lambda _: (), lambda _: ()).shards[0])
    table = read_scores(tmp_path / "scores-00000.parquet")
    assert np.isnan(table.fields_correct).all() and set(table.need_target) == {"given_accept"}


@pytest.mark.slow
def test_what_is_written_is_kept_beside_the_scores_and_read_again(writing, files, tmp_path, with_two_offers):
    out = tmp_path / "out"
    run(writing, files, out, reread=True)
    assert sorted(content(out)) == ["score.json", *SIBLINGS]
    written = [stream for path in sorted(out.glob("written-*.jsonl")) for stream in read_streams(path)]
    table = read_all(str(out))  # the folder, whose other files are no scores
    asked = with_two_offers[:9]
    places = list(zip(table.stream, table.step.tolist(), table.candidate.tolist(), strict=True))
    offers = {
        (stream.id, number, index): offer
        for stream in written
        for number, step in enumerate(stream.steps)
        for index, offer in enumerate(step.candidates)
    }
    assert list(offers) == places
    bare = [map_candidates(one, lambda offer: Candidate(text=offer.text)) for one in written]
    assert bare == list(map(without_answers, asked))
    for offer in offers.values():
        task = json.loads(offer.response)["Proactive Task"]
        assert offer.proposal == (task if offer.text is None else None)
    # The second reading is the fast pass on streams whose offer is the written text.
    said = [map_candidates(one, lambda offer: Candidate(text=offer.said)) for one in written]
    student = load_student(writing, read_exported(writing), "float32")
    rows = list(score_streams(student, said, split="test", fold=0, context=2048, batch=3))
    expected = [
        row["p_accept_fast"] if offers[place].proposal else np.nan for row, place in zip(rows, places, strict=True)
    ]
    np.testing.assert_allclose(table.p_accept_written, expected, atol=1e-6)
    assert 0 < np.isnan(table.p_accept_written).sum() < len(table)
    assert (np.abs(table.p_accept_written - table.p_accept_fast) > 1e-3).any()


SIBLINGS = [
    f"{name}-0000{number}.{suffix}"
    for name, suffix in (("scores", "parquet"), ("written", "jsonl"))
    for number in range(3)
]


def test_a_shard_is_finished_with_both_files_and_equal_to_the_byte(writing, files, tmp_path, monkeypatch, caplog):
    run(writing, files, tmp_path / "whole")
    whole = content(tmp_path / "whole")
    out = tmp_path / "out"
    cut_off(monkeypatch)  # between the two files of a shard
    with pytest.raises(OSError, match="the disk is full"):
        run(writing, files, out)
    assert (out / "written-00001.jsonl").exists() and not (out / "scores-00001.parquet").exists()
    run(writing, files, out)
    assert content(out) == whole
    (out / "written-00000.jsonl").unlink()
    (out / "written-00001.jsonl").write_bytes(whole["written-00001.jsonl"][:-9])
    (out / "written-00002.jsonl").write_bytes(whole["written-00001.jsonl"])
    run(writing, files, out)
    assert content(out) == whole
    for number, message in enumerate(caplog.messages, 1):
        assert message.startswith(f"{out}/written-0000{number}.jsonl: found other bytes than were written")


def test_null_in_words_is_no_proposal():
    tasks = ("null", " None ", "Run the tests")
    stream = Stream(id="s", events=(Event(time=0.0, text="e"),), steps=(Step(event=0, candidates=(Candidate(),) * 3),))
    responses = {("s", 0, index): json.dumps(dict.fromkeys(RESPONSE_KEYS, task)) for index, task in enumerate(tasks)}
    (step,) = with_responses(stream, responses).steps
    assert [offer.proposal for offer in step.candidates] == [None, None, "Run the tests"]
    assert all(offer.response is not None for offer in step.candidates)


def test_reading_again_needs_a_student_that_writes(exported, files, tmp_path):
    with pytest.raises(ValueError, match="--reread: found no responses to read again"):
        run(exported, files, tmp_path / "out", reread=True)
