import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from unittest import mock

import pytest
import tensorflow_datasets as tfds

from prism_jax.streams import Candidate, Event, Step, Stream, proactivebench
from prism_jax.streams.jsonl import StreamError
from prism_jax.streams.proactivebench import ARCHIVE, COMMIT, SPLIT, ProactiveBench, load
from prism_jax.streams.proactivebench_source import digest, read_source

# Three streams in the official layout. In the first, the third event is stamped before the second. In the second, half
# of the texts differ from its file. The third has no file.
CODE = [
    ("1717338232.283", "Öffnet »naïve.py« 😀"),
    ("1717338240.5", "Tippt eine\u2028Zeile"),
    ("1717338239", "运行测试"),
]
WRITING = [("1717400000.0", "Opens a letter."), ("1717400001.0", "Writes 'Dear'.")]
DAILY = [("Day 1, 11:58 PM", "Cannot sleep."), ("Day 2, 12:03 AM", "Looks for a recipe.")]
DAILY_ID = "synthetic_09be14cc"


def _row(events, offer, votes, help_needed=False, valid=None):
    valid = sum(votes) >= 2 if valid is None else valid
    seen, judged = [{"time": time, "event": text} for time, text in events], {"valid": valid, "annotation": votes}
    return {"obs": seen, "pred_task": offer, "help_needed": help_needed, "category": "any", **judged}


TRAIN = [
    _row(CODE[:1], "Offer the tests", [True, True, True], help_needed=True),
    _row(CODE[:1], "Erklären", [True, False, False], help_needed=True),
    _row(CODE[:1], None, [False, False, True], help_needed=True, valid=False),
    _row(CODE, "Run it", [True, False], valid=False),  # one of two wanted an offer: no majority
    _row(CODE, None, [False, True], valid=True),
    _row(DAILY[:1], None, [False, True, True], valid=True),  # the source drops its offers, whose votes were tied
    _row(DAILY, "Find a recipe", [True, True, False]),
    _row(DAILY, None, [False, False, True], valid=True),
]
TEST = [
    _row(CODE[:1], None, [False, False, True], help_needed=True, valid=False),  # a duplicate: counts once
    _row(CODE[:2], "Nichts", [False, False, False]),  # nobody wanted an offer: no row on silence
    _row(CODE[:1], "Format it", [True, True, False], help_needed=True),
    _row(WRITING, "Suggest a greeting", [False, True, True], help_needed=True),
]
FILES = {
    "code_7": CODE,
    "writing_3": [("1717400000.0", "Opens the letter."), WRITING[1]],
    "writing_4": [("1717500000.0", "Sleeps.")],
}


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    _write_rows(root / "dataset/reward_data/train_data.jsonl", TRAIN)
    _write_rows(root / "dataset/reward_data/test_data.jsonl", TEST)
    for stem, events in FILES.items():
        steps = [{"observation": {"time": time, "event": text}, "task_status": True} for time, text in events]
        _write_json(root / f"dataset/test_data/{stem}.json", steps)
    _write_json(root / "dataset/test_data/splits.json", {"real_average": {"files": []}})
    return root


def _write_rows(path, rows, ensure_ascii=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=ensure_ascii) + "\n" for row in rows), encoding="utf-8")


def _write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _offer(text, *votes, accepted):
    return Candidate(text=text, y_accept=float(accepted), votes=votes, logged=True, propensity=1.0)


def test_the_layout_becomes_whole_streams(source, tmp_path, caplog):
    y, n = True, False
    found = load(source, tmp_path / "tfds")
    said = "ProactiveBench: events stamped before an earlier one take its time: 1 (code_7), by up to 2 s"
    assert said in caplog.messages
    recipe = _offer("Find a recipe", y, y, n, accepted=True)
    first = (
        _offer("Offer the tests", y, y, y, accepted=True),
        _offer("Erklären", y, n, n, accepted=False),
        _offer("Format it", y, y, n, accepted=True),
    )
    assert found == [
        Stream(
            id="code_7",
            domain="coding",
            events=(
                Event(time=1717338232.283, text=CODE[0][1], time_text=CODE[0][0]),
                Event(time=1717338240.5, text=CODE[1][1], time_text=CODE[1][0]),
                # raised to the time of the event before it
                Event(time=1717338240.5, text=CODE[2][1], time_text=CODE[2][0]),
            ),
            steps=(
                Step(event=0, y_need=1.0, votes=(n, n, y), candidates=first),
                Step(event=1, y_need=0.0, candidates=(_offer("Nichts", n, n, n, accepted=False),)),
                Step(event=2, y_need=0.0, votes=(n, y), candidates=(_offer("Run it", y, n, accepted=False),)),
            ),
        ),
        Stream(
            id=DAILY_ID,
            domain="synthetic",
            events=(
                Event(time=86_280.0, text=DAILY[0][1], time_text=DAILY[0][0]),
                Event(time=86_580.0, text=DAILY[1][1], time_text=DAILY[1][0]),
            ),
            steps=(
                Step(event=0, y_need=0.0, votes=(n, y, y), candidates=(Candidate(),)),
                Step(event=1, y_need=0.0, votes=(n, n, y), candidates=(recipe,)),
            ),
        ),
        Stream(
            id="writing_3",
            domain="writing",
            events=tuple(Event(time=float(time), text=text, time_text=time) for time, text in WRITING),
            steps=(Step(event=1, y_need=1.0, candidates=(_offer("Suggest a greeting", n, y, y, accepted=True),)),),
        ),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_rows_and_their_file_change_nothing(source, tmp_path, seed):
    expected = load(source, tmp_path / "tfds")
    rows = [*TRAIN, *TEST]
    random.Random(seed).shuffle(rows)
    for name, part in (("train", rows[:5]), ("test", rows[5:])):
        _write_rows(source / f"dataset/reward_data/{name}_data.jsonl", part)
    assert load(source, tmp_path / "tfds") == expected


def test_the_order_of_a_steps_offers_is_not_that_of_their_labels(source):
    """With 40 accepted offers before 40 rejected ones, both halves of the step hold both kinds."""
    rows = [_row(CODE[:1], f"Offer {i}", [i < 40] * 3) for i in range(80)]
    _write_rows(source / "dataset/reward_data/train_data.jsonl", rows)
    _write_rows(source / "dataset/reward_data/test_data.jsonl", rows[:1])
    (record,) = read_source(source)
    labels = [candidate["valid"] for candidate in record["candidates"]]
    assert len(labels) == 80
    assert 10 < sum(labels[:40]) < 30


@pytest.mark.parametrize(
    ("need", "labels"), [("strict", "100 00 1"), ("majority", "100 01 0"), ("any_valid", "100 01 1")]
)
def test_need_has_three_definitions(source, tmp_path, need, labels):
    streams = load(str(source), str(tmp_path / "tfds"), need=need)
    assert " ".join("".join(f"{step.y_need:.0f}" for step in stream.steps) for stream in streams) == labels


def test_the_constant_offer_is_accepted_where_any_listed_one_is_valid(source, tmp_path):
    code, daily, writing = load(source, tmp_path / "tfds", candidates="constant")
    yes, no = (Candidate(y_accept=label, logged=True, propensity=1.0) for label in (1.0, 0.0))
    assert [step.candidates for step in code.steps] == [(yes,), (no,), (no,)]
    assert [step.candidates for step in daily.steps] == [(Candidate(),), (yes,)]
    assert [step.candidates for step in writing.steps] == [(yes,)]


@pytest.mark.parametrize("labels", itertools.product((None, 0.0, 1.0), repeat=2))
def test_it_does_not_matter_which_of_the_listed_offers_is_valid(labels):
    (offer,) = proactivebench._candidates([Candidate(text="x", y_accept=label) for label in labels], "constant")
    assert offer.y_accept == float(1.0 in labels)


def test_the_dataset_is_a_tfds_data_source_with_everything_in_it(source, tmp_path):
    builder = ProactiveBench(source=source, data_dir=tmp_path / "tfds")
    builder.download_and_prepare()
    assert builder.info.splits[SPLIT].num_examples == 3
    again = tfds.builder_from_directory(builder.data_dir)  # as a user without this class would
    examples = {example["id"].decode(): example for example in again.as_data_source(split=SPLIT)}
    assert set(examples) == {"code_7", "writing_3", DAILY_ID}
    code = examples["code_7"]
    assert [time.decode() for time in code["events"]["time"]] == [time for time, _ in CODE]
    assert [text.decode() for text in code["events"]["text"]] == [text for _, text in CODE]
    assert list(code["steps"]["need_strict"]) == [True, False, False]
    assert [votes.decode() for votes in code["steps"]["silence_votes"]] == ["001", "", "01"]
    assert list(code["candidates"]["step"]) == [0, 0, 0, 1, 2]
    assert list(code["candidates"]["valid"]) == [True, False, True, False, False]
    assert [votes.decode() for votes in code["candidates"]["votes"]] == ["111", "100", "110", "000", "10"]


@pytest.mark.parametrize("said", ["data_dir", "TFDS_DATA_DIR", "nothing"])
def test_the_prepared_copy_lies_where_it_was_said_to_lie_and_needs_no_tensorflow(source, tmp_path, said):
    home, place = tmp_path / "home", tmp_path / "place"
    home.mkdir()
    given = repr(str(place)) if said == "data_dir" else None
    environment = os.environ | {"HOME": str(home)} | ({"TFDS_DATA_DIR": str(place)} if said == "TFDS_DATA_DIR" else {})
    code = f"import sys; from prism_jax.streams.proactivebench import load; load({str(source)!r}, {given})"
    code += "; assert 'tensorflow' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    folder = home / "tensorflow_datasets" if said == "nothing" else place
    assert (folder / "proactive_bench").is_dir()
    assert f"prepared to {folder}" in run.stdout + run.stderr
    assert {path.name for path in home.iterdir()} == ({"tensorflow_datasets"} if said == "nothing" else set())


@pytest.mark.parametrize("wrong", ["need", "candidates"])
def test_unknown_options_are_refused(wrong, unchecked):
    expected = {"need": "strict, majority, any_valid", "candidates": "listed, constant"}[wrong]
    with pytest.raises(ValueError, match=f"^{wrong}: found 'every', expected one of {expected}$"):
        load("nowhere", **{wrong: "every"})


def test_the_cache_follows_the_content(source, tmp_path):
    data_dir = tmp_path / "tfds"
    first = load(source, data_dir)
    records = sorted(data_dir.rglob("*.array_record-*"))
    stamps = [path.stat().st_mtime_ns for path in records]
    shutil.copytree(source, tmp_path / "copy")
    assert load(tmp_path / "copy", data_dir) == first
    assert sorted(data_dir.rglob("*.array_record-*")) == records
    assert [path.stat().st_mtime_ns for path in records] == stamps

    train = source / "dataset/reward_data/train_data.jsonl"
    train.write_text(train.read_text(encoding="utf-8").replace("Erklären", "Vorlesen"), encoding="utf-8")
    changed = load(source, data_dir)
    assert changed[0].steps[0].candidates[1].text == "Vorlesen"
    assert changed[1:] == first[1:]
    assert load(tmp_path / "copy", data_dir) == first


REWARDS = ("reward_data/train_data.jsonl", "reward_data/test_data.jsonl")


@pytest.mark.parametrize("name", [*REWARDS, "test_data/code_7.json", "test_data/writing_4.json"])
def test_the_digest_sees_every_file(source, name):
    before = digest(source)
    path = source / "dataset" / name
    path.write_bytes(path.read_bytes() + b"\n")
    changed = digest(source)
    assert changed != before
    path.rename(path.with_name(f"code_1{path.suffix}"))
    if path.suffix == ".json":
        assert digest(source) not in (before, changed)


def test_without_a_source_the_official_archive_is_downloaded(source, tmp_path):
    shutil.copytree(source, tmp_path / "archive" / f"ProactiveAgent-{COMMIT}")
    manager = mock.Mock(spec=tfds.download.DownloadManager)
    manager.download_and_extract.return_value = tmp_path / "archive"
    builder = ProactiveBench(data_dir=tmp_path / "tfds")
    examples = dict(builder._split_generators(manager)[SPLIT])
    manager.download_and_extract.assert_called_once_with(ARCHIVE)
    assert list(examples.values()) == read_source(source)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            _row([CODE[0], ("1717338240.5", "something else")], "x", [True, True]),
            "obs[1]: found ('1717338240.5', 'something else'), expected ('1717338240.5', 'Tippt eine\\u2028Zeile')",
        ),
        (_row([("tomorrow", "x")], "x", [True, True]), "obs[0].time: found 'tomorrow', expected epoch seconds or"),
        (_row([("3", "x"), DAILY[1]], "x", [True, True]), "obs[1].time: found 'Day 2, 12:03 AM', expected the clock"),
        (_row(CODE[:2], "x", [True, True], help_needed=True), "help_needed: found True, expected False as in"),
        (_row(CODE[:1], None, [True, False], help_needed=True), "pred_task: found another verdict on silence than in"),
        (_row([("9", "x"), WRITING[1]], "x", [True, True]), "obs: found a second stream that matches writing_3 (first"),
    ],
)
def test_bad_rows_are_named_by_file_line_and_field(source, row, message):
    path = source / "dataset/reward_data/test_data.jsonl"
    _write_rows(path, [*TEST, row], ensure_ascii=True)
    with pytest.raises(StreamError) as caught:
        read_source(source)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{len(TEST) + 1}: {message}")


def test_a_broken_line_is_named_and_leaves_no_dataset(source, tmp_path):
    path = source / "dataset/reward_data/train_data.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(StreamError) as caught:
        load(source, tmp_path / "tfds")
    assert str(caught.value).startswith(f"{path}:{len(TRAIN)}: found broken JSON at column ")
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "tfds").rglob("*") if "record" in path.name or "info" in path.name]


@pytest.mark.parametrize("name", ["", "dataset/test_data", *(f"dataset/{rewards}" for rewards in REWARDS)])
def test_what_is_missing_is_named(source, tmp_path, name):
    path = source / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    files = "dataset/reward_data/train_data.jsonl, dataset/reward_data/test_data.jsonl and the folder dataset/test_data"
    expected = f"{path}: not found, expected the layout of the repository thunlp/ProactiveAgent ({files})"
    for attempt in (lambda: load(source, tmp_path / "tfds"), lambda: read_source(source), lambda: digest(source)):
        with pytest.raises(FileNotFoundError, match=f"^{re.escape(expected)}$"):
            attempt()
    assert not (tmp_path / "tfds").exists()


def test_no_rows_are_no_source(source):
    for name in ("train", "test"):
        _write_rows(source / f"dataset/reward_data/{name}_data.jsonl", [])
    with pytest.raises(StreamError, match=r"source: found no rows in dataset/reward_data/train_data\.jsonl and"):
        read_source(source)
