import codecs
import json
import os
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from prism_jax.runtime.files import write_bytes
from prism_jax.scores import Scores, ScoresError, read_scores, write_scores
from prism_jax.scores.joining import joined
from prism_jax.scores.parts import as_parquet, gather, parts_of, read_part
from prism_jax.scores.schema import COLUMNS, REQUIRED

REQUIRED_ROW = {"stream": "a", "step": 0, "p_need_fast": 0.25, "p_accept_fast": 0.5}
FULL_ROW = REQUIRED_ROW | {"candidate": 1, "time": 12.5, "domain": "coding", "persona": "expert", "person": "someone"}
FULL_ROW |= {"split": "test", "fold": 3, "p_need_slow": 0.375, "p_accept_slow": 0.625, "p_accept_written": 0.5}
FULL_ROW |= {"y_need": 1.0, "y_accept": 0.0, "votes": [True, False, True], "logged": True, "propensity": 0.75}
FULL_ROW |= {"p_need_true": 0.3, "p_accept_true": 0.4, "p_both_true": 0.2, "fields_correct": 0.75}
FULL_ROW |= {"tokens_fast": 120, "tokens_slow": 77, "tokens_response": 0}
FULL_ROW |= {"need_target": "given_accept", "calibrated": True}
NULLABLE = [name for name, column in COLUMNS.items() if column.nullable]
SUFFIXES = pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])


def row(**changes):
    return {**REQUIRED_ROW, **changes}


def written(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def as_parts(path, folder):
    return str(path) if path.suffix == ".parquet" else as_parquet(str(path), folder / "parts", "x")


def in_parts(path):
    return joined([rows for part in parts_of(str(path)) for rows in read_part(part)])


def equal(left, right):
    return list(left.columns()) == list(right.columns()) and all(
        a.dtype == b.dtype and (np.array_equal(a, b, equal_nan=True) if a.dtype != object else list(a) == list(b))
        for a, b in zip(left.columns().values(), right.columns().values(), strict=True)
    )


unit = st.floats(0, 1)


@st.composite
def tables(draw):
    """Tables of several streams, steps and candidates, with nulls and any subset of the optional columns."""
    rows = []
    for stream in draw(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3, unique=True)):
        of_stream = {
            "domain": "writing",
            "fold": draw(st.integers(0, 4)),
            "split": draw(st.sampled_from(["train", "test"])),
        }
        for step in draw(st.lists(st.integers(0, 2**40), min_size=1, max_size=3, unique=True)):
            of_step = {
                "p_need_fast": draw(unit),
                "y_need": draw(st.none() | unit),
                "time": draw(st.none() | st.floats(-1e9, 1e9)),
            }
            for candidate in draw(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)):
                logged = draw(st.none() | st.booleans())
                rows.append(
                    {
                        "stream": stream,
                        "step": step,
                        "candidate": candidate,
                        "p_accept_fast": draw(unit),
                        "y_accept": None if logged is False else draw(st.none() | unit),
                        "votes": draw(st.lists(st.booleans(), max_size=3)),
                        "logged": logged,
                        "propensity": draw(st.floats(0.01, 0.99)),
                        "tokens_fast": draw(st.none() | st.integers(0, 2**50)),
                        **of_stream,
                        **of_step,
                    }
                )
    dropped = draw(st.sets(st.sampled_from([name for name in rows[0] if name not in (*REQUIRED, "candidate")])))
    if "p_need_fast" in dropped:
        dropped.add("y_need")
    order = draw(st.permutations(range(len(rows))))
    return [{name: value for name, value in rows[i].items() if name not in dropped} for i in order]


@SUFFIXES
@given(rows=tables())
def test_files_hold_exactly_the_table_and_their_bytes_depend_on_it_alone(tmp_path_factory, suffix, rows):
    folder = tmp_path_factory.mktemp("scores")
    scores = Scores.from_rows(rows)
    write_scores(folder / f"first{suffix}", scores)
    again = read_scores(folder / f"first{suffix}")
    assert equal(scores, again)
    write_scores(folder / f"second{suffix}", again)
    assert (folder / f"first{suffix}").read_bytes() == (folder / f"second{suffix}").read_bytes()


@given(rows=tables())
def test_steps_take_the_first_candidate_of_highest_acceptance(rows):
    scores = Scores.from_rows(rows)
    best = {}
    for i in range(len(scores)):
        key = (scores.stream[i], int(scores.step[i]))
        rank = (-scores.p_accept_fast[i], scores.candidate[i], i)
        best[key] = min(best.get(key, rank), rank)
    streams = list(dict.fromkeys(scores.stream))
    expected = sorted(best, key=lambda key: (streams.index(key[0]), key[1]))
    steps = scores.steps()
    assert list(zip(steps.stream, steps.step.tolist(), strict=True)) == expected
    assert steps.candidate.tolist() == [best[key][1] for key in expected]
    assert equal(steps, scores.take(np.array([best[key][2] for key in expected])))
    assert equal(steps.steps(), steps)


@SUFFIXES
def test_every_column_round_trips(tmp_path, suffix):
    scores = Scores.from_rows([FULL_ROW, {**FULL_ROW, "candidate": 2, **dict.fromkeys(set(NULLABLE) & {"y_accept"})}])
    assert list(scores.columns()) == list(COLUMNS)
    write_scores(tmp_path / f"x{suffix}", scores)
    again = read_scores(tmp_path / f"x{suffix}")
    assert equal(again, scores)
    assert again.votes[0] == (True, False, True)
    assert np.isnan(again.y_accept[1])


@SUFFIXES
def test_every_nullable_column_may_be_null_throughout(tmp_path, suffix):
    scores = Scores.from_rows([{**FULL_ROW, **dict.fromkeys(NULLABLE)}])
    write_scores(tmp_path / f"x{suffix}", scores)
    assert equal(read_scores(tmp_path / f"x{suffix}"), scores)


def test_the_dataclass_has_the_schemas_columns_and_only_the_required_ones_are_required():
    fields = {n: field for n, field in Scores.__dataclass_fields__.items() if n not in ("extra", "_numbered")}
    assert list(fields) == list(COLUMNS)
    assert [name for name in fields if fields[name].default is not None] == [
        name for name in COLUMNS if name in (*REQUIRED, "candidate")
    ]
    assert list(Scores.from_rows([{name: REQUIRED_ROW[name] for name in REQUIRED}]).columns()) == [
        name for name in COLUMNS if name in (*REQUIRED, "candidate")
    ]


def test_a_missing_candidate_column_means_one_candidate_a_step():
    assert Scores.from_rows([row(), row(step=1)]).candidate.tolist() == [0, 0]
    with pytest.raises(ScoresError, match="row 1: found stream 'a', step 0, candidate 0 a second time"):
        Scores.from_rows([row(), row()])


def test_columns_cannot_be_written_to():
    one, p = {"stream": ["a"], "step": [0]}, np.array([0.5])
    scores = Scores.from_columns({**one, "p_need_fast": p, "p_accept_fast": np.array([1], np.float32)})
    with pytest.raises(ValueError, match="read-only"):
        scores.p_need_fast[0] = 1.0
    p[0] = 0.25  # the caller's own array stays the caller's
    assert scores.p_accept_fast.dtype == np.float64


BAD_ROWS = [
    ([row(p_need_fast=1.5)], 0, "p_need_fast", r"found 1\.5, expected a number in \[0, 1\]"),
    ([row(p_accept_fast=-0.1)], 0, "p_accept_fast", r"found -0\.1, expected a number in \[0, 1\]"),
    ([row(), row(step=1, p_accept_fast=None)], 1, "p_accept_fast", r"found null, expected a number in \[0, 1\]"),
    ([row(p_accept_fast=True)], 0, "p_accept_fast", "found True, expected a number"),
    ([row(), row(step=1, p_need_fast="0.5")], 1, "p_need_fast", "found '0.5', expected a number"),
    ([row(y_need=2.0)], 0, "y_need", r"found 2\.0, expected a number in \[0, 1\] or null"),
    ([row(stream="")], 0, "stream", "found '', expected a non-empty string"),
    ([row(stream=7)], 0, "stream", "found 7, expected a non-empty string"),
    ([row(step=-1)], 0, "step", "found -1, expected an integer of at least 0"),
    ([row(step=0.0)], 0, "step", r"found 0\.0, expected an integer"),
    ([row(step=2**70)], 0, "step", "expected an integer"),
    ([row(tokens_fast=-3)], 0, "tokens_fast", "found -3, expected an integer of at least 0 or null"),
    ([row(tokens_fast=1.5)], 0, "tokens_fast", r"found 1\.5, expected an integer"),
    ([row(logged=1)], 0, "logged", "found 1, expected true or false or null"),
    ([row(votes=[1, 0])], 0, "votes", r"found \[1, 0\], expected a list of true and false"),
    ([row(propensity=0.0)], 0, "propensity", r"found 0\.0, expected above 0"),
    ([row(propensity=1.0, logged=False)], 0, "propensity", r"found 1\.0, expected below 1 where logged is false"),
    ([row(y_accept=1.0, logged=False)], 0, "y_accept", r"found 1\.0, expected null where logged is false"),
    ([row(logged=False, propensity=0.5), row(step=1, logged=True)], 1, "propensity", "found null, expected a number"),
    ([row(p_need_slow=0.5, p_accept_slow=None)], 0, "p_accept_slow", "found null, expected a number, as p_need_slow"),
    ([row(p_need_slow=None, p_accept_slow=0.5)], 0, "p_need_slow", "found null, expected a number, as p_accept_slow"),
    (
        [row(p_accept_true=0.5, p_both_true=0.5), row(step=1, p_accept_true=0.5, p_both_true=0.6)],
        1,
        "p_both_true",
        r"found 0\.6, expected at most p_accept_true",
    ),
    ([row(p_need_true=0.1, p_both_true=0.2)], 0, "p_both_true", r"found 0\.2, expected at most p_need_true"),
    (
        [row(p_need_true=0.9, p_accept_true=0.8, p_both_true=0.6)],
        0,
        "p_both_true",
        r"found 0\.6, expected at least p_n",
    ),
    ([row(candidate=0), row(candidate=1, p_need_fast=0.3)], 1, "p_need_fast", r"found 0\.3, expected 0\.25 .*within"),
    ([row(y_need=1.0, candidate=0), row(candidate=1)], 1, "y_need", r"found null, expected 1\.0 as elsewhere in"),
    ([row(split="test"), row(step=1, split="train")], 1, "split", "found 'train', expected 'test' .*within a stream"),
]


@SUFFIXES
@pytest.mark.parametrize(("rows", "at", "column", "message"), BAD_ROWS)
def test_bad_rows_are_refused_in_one_line_that_names_the_place(tmp_path, suffix, rows, at, column, message):
    with pytest.raises(ScoresError, match=message) as caught:
        Scores.from_rows(rows)
    assert (caught.value.row, caught.value.column) == (at, column)
    path = tmp_path / f"bad{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        place = f"{path}, line {at + 1}, {column}: "
    else:
        try:
            pq.write_table(pa.Table.from_pylist(rows), path)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return  # rows that Parquet cannot even hold
        place = f"{path}, "
    with pytest.raises(ScoresError) as caught:
        read_scores(path)
    assert str(caught.value).startswith(place)
    assert f"{column}: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", list(COLUMNS))
def test_no_column_takes_a_value_of_another_kind(name):
    for wrong in ({}, object(), "x" if COLUMNS[name].kind != "text" else 1.5):
        with pytest.raises(ScoresError, match=rf"^scores, row 0, {name}: found .*, expected "):
            Scores.from_rows([{**FULL_ROW, name: wrong}])
    if not COLUMNS[name].nullable:
        with pytest.raises(ScoresError, match=rf"^scores, row 0, {name}: found null, expected "):
            Scores.from_rows([{**FULL_ROW, name: None}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"stream": "a", "st', "line 1: found broken JSON"),
        ('{"stream": "a", "step": 0, "p_need_fast": NaN, "p_accept_fast": 0}', "line 1, p_need_fast: found nan"),
        (json.dumps(row()) + "\n" + json.dumps(row(step=1, y_need=float("nan"))), "line 2, y_need: found nan"),
        ("[1]\n", r"line 1: found \[1\], expected an object"),
        (json.dumps(row()) + "\n\n", "line 2: found nothing, expected a JSON value"),
        (json.dumps(row()) + '\n{"step": 1, "step": 2}', "line 2: found key 'step' twice in one object"),
        ('{"stream": "\xe9"}'.encode("latin-1"), "line 1: found byte 0xe9 at 12, expected UTF-8"),
        ("[" * 10**6, "line 1: found brackets nested too deep"),
        ("", "found no rows"),
        (json.dumps({**REQUIRED_ROW, "p_acept_fast": 1}), "line 1: unknown column 'p_acept_fast'; did you mean 'p_a"),
        (json.dumps({**REQUIRED_ROW, "p_need": 1}), "line 1: unknown column 'p_need'; did you mean '"),
        (json.dumps({"id": "a", "events": [], "steps": []}), "line 1: found 'steps', as files of streams have it"),
        (json.dumps({**REQUIRED_ROW, **{f"x{i}": 1 for i in range(101)}}), "line 1: found more than 100 unknown"),
        ('{"stream": "a", "step": 0, "p_need_fast": 1}', "p_accept_fast: found only stream, step, p_need_f"),
        (json.dumps(row(p_need_slow=0.5)), "p_accept_slow: found no such column beside p_need_slow"),
    ],
)  # fmt: skip
def test_broken_jsonl_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ScoresError, match=message) as caught:
        read_scores(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"p_need_fast": pa.array([float("nan")])}, r"row 0, p_need_fast: found nan, expected a number in \[0, 1\]"),
        ({"y_need": pa.array([float("nan")])}, r"row 0, y_need: found nan, expected a number in \[0, 1\] or null"),
        ({"p_need_fast": pa.array([None], pa.float64())}, "row 0, p_need_fast: found null"),
        ({"p_need_fast": pa.array(["0.5"])}, "p_need_fast: found the type string, expected double"),
        ({"step": pa.array([1.0])}, "step: found the type double, expected int64"),
        ({"logged": pa.array([1])}, "logged: found the type int64, expected bool"),
        ({"votes": pa.array([[1.0]])}, "votes: found the type list.*, expected list<"),
        ({"y_ned": pa.array([1.0])}, "unknown column 'y_ned'; did you mean 'y_need'"),
        ({"stream": pa.array(["a"]), "p_accept_fast": None}, "p_accept_fast: found only stream, step, p_need_fast"),
    ],
)
def test_wrong_parquet_is_refused(tmp_path, column, message):
    table = {**{name: pa.array([value]) for name, value in REQUIRED_ROW.items()}, **column}
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({name: values for name, values in table.items() if values is not None}), path)
    with pytest.raises(ScoresError, match=message) as caught:
        read_scores(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:4] + b"\xff" * 56 + data[60:]])
def test_a_parquet_file_that_is_cut_or_has_a_damaged_page_is_one_line(tmp_path, damage):
    path = tmp_path / "x.parquet"
    write_scores(path, Scores.from_rows({**REQUIRED_ROW, "stream": f"s{i}"} for i in range(50)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ScoresError, match=rf"^{path}: found no readable Parquet \(.*\)$"):
        read_scores(path)


def test_narrower_and_dictionary_types_of_other_writers_are_read(tmp_path):
    path = tmp_path / "x.parquet"
    table = {
        "stream": pa.array(["a", "a"]).dictionary_encode(),
        "step": pa.array([0, 1], pa.uint8()),
        "p_need_fast": pa.array([0, 1], pa.int32()),
        "p_accept_fast": pa.array([0.1, 0.2], pa.float32()),
        "y_accept": pa.nulls(2),
    }
    pq.write_table(pa.table(table), path)
    scores = read_scores(path)
    assert scores.stream.tolist() == ["a", "a"]
    assert scores.p_accept_fast.tolist() == np.array([0.1, 0.2], np.float32).astype(np.float64).tolist()
    assert np.isnan(scores.y_accept).all()


@SUFFIXES
def test_labels_may_be_true_and_false_and_nothing_else_may(tmp_path, suffix):
    rows = [row(y_need=True, y_accept=None), row(step=1, y_need=False, y_accept=True)]
    path = written(tmp_path / f"x{suffix}", rows)
    scores = read_scores(path)
    assert scores.y_need.tolist() == [1.0, 0.0] and scores.y_accept[1] == 1.0 and np.isnan(scores.y_accept[0])
    if suffix == ".parquet":
        assert equal(in_parts(path), scores)
    with pytest.raises(ScoresError, match=r"p_accept_fast: found (True|the type bool), expected"):
        read_scores(written(path, [row(p_accept_fast=True)]))


@SUFFIXES
@pytest.mark.parametrize("times", [(1.0, 1.79e12), (1, 1790000000000000001), (1.0, -1e12), (20261127,) * 3])
def test_times_that_are_no_seconds_are_refused(tmp_path, suffix, times):
    path = written(tmp_path / f"x{suffix}", [row(step=step, time=time) for step, time in enumerate(times)])
    for read in (read_scores, lambda path: in_parts(as_parts(path, tmp_path))):
        with pytest.raises(ScoresError, match=r"time: found .*, expected a number of seconds of at most 1e\+11"):
            read(path)


@SUFFIXES
def test_one_person_is_one_person(tmp_path, suffix):
    people = ["7", "7.0", "zo\u00eb", "zoe\u0308 ", "\u200bzo\u00eb"]
    path = written(tmp_path / f"x{suffix}", [row(stream=f"s{i}", person=person) for i, person in enumerate(people)])
    for scores in (read_scores(path), in_parts(as_parts(path, tmp_path))):
        assert scores.person.tolist() == ["7", "7", "zo\u00eb", "zo\u00eb", "zo\u00eb"]
    with pytest.raises(ScoresError, match=r"person: found 'NaN', expected a non-empty string that is no word for"):
        read_scores(written(path, [row(person="NaN")]))


@SUFFIXES
def test_scores_say_on_every_row_that_they_are_calibrated_or_not_at_all(tmp_path, suffix):
    path = written(tmp_path / f"x{suffix}", [row(calibrated=True), row(step=1, calibrated=True)])
    scores = read_scores(path)
    for kept in (scores, in_parts(as_parts(path, tmp_path)), scores.take(np.array([1])), scores.steps()):
        assert (kept.calibrated == 1).all()
    write_scores(path, scores)
    assert equal(read_scores(path), scores)
    with pytest.raises(ScoresError, match=r"calibrated: found 0\.0, expected true on every row"):
        read_scores(written(path, [row(calibrated=True), row(step=1, calibrated=False)]))
    with pytest.raises(ScoresError, match="calibrated: found null, expected true"):
        read_scores(written(path, [row(calibrated=True), row(step=1)]))
    with pytest.raises(ScoresError, match="found tables with and without calibrated"):
        joined([scores, Scores.from_rows([row(step=2)])])


def test_a_byte_order_mark_before_jsonl_is_no_part_of_it(tmp_path):
    line = json.dumps(row()).encode() + b"\n"
    (tmp_path / "x.jsonl").write_bytes(
        codecs.BOM_UTF8 + line + codecs.BOM_UTF8 + line.replace(b'"step": 0', b'"step": 1')
    )
    assert read_scores(tmp_path / "x.jsonl").step.tolist() == [0, 1]  # two such files that were joined


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_views_of_strings_and_timestamps_are_read(tmp_path, unit):
    counts = [1_790_000_000 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]] * 2
    table = {
        "stream": pa.array(["a", "b"]).cast(pa.string_view()),
        "step": [0, 0],
        "time": pa.array(counts, pa.timestamp(unit)),
        "person": pa.array(["p", "q"]).cast(pa.large_string()).dictionary_encode(),
        "p_accept_fast": [0.1, 0.2],
        "y_accept": [True, False],
    }
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(table), path)
    scores = read_scores(path)
    assert scores.time.tolist() == [1.79e9] * 2 and scores.person.tolist() == ["p", "q"]
    assert equal(in_parts(path), scores)
    gathered = next(read_part(gather(parts_of(str(path)), tmp_path / "gathered")[0]))
    assert gathered.time.tolist() == [1.79e9] * 2 and gathered.y_accept.tolist() == [1.0, 0.0]


def test_parquet_is_read_in_batches_with_one_object_for_equal_texts(tmp_path, monkeypatch):
    monkeypatch.setattr("prism_jax.scores.files._BATCH", 7)
    scores = Scores.from_rows({**FULL_ROW, "stream": f"s{i // 5}", "step": i, "time": i / 3} for i in range(40))
    write_scores(tmp_path / "x.parquet", scores)
    pq.write_table(pq.read_table(tmp_path / "x.parquet"), tmp_path / "x.parquet", row_group_size=11)
    again = read_scores(tmp_path / "x.parquet")
    assert equal(again, scores)
    assert len(set(map(id, again.stream))) == 8
    assert len(set(map(id, again.domain))) == len(set(map(id, again.votes))) == 1


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("p_accept_fast", [0.5] * 23 + [None] * 17, "row 23, p_accept_fast: found null"),
        ("y_need", [0.5] * 29 + [float("nan")] * 11, "row 29, y_need: found nan"),
        ("y_accept", [1.0] * 38 + [1.5, 1.0], r"row 38, y_accept: found 1\.5"),
        ("step", [*range(39), 38], "row 39: found stream 'a', step 38, candidate 0 a second time"),
        ("domain", ["coding"] * 31 + ["writing"] * 9, "row 31, domain: found 'writing', expected 'coding'"),
    ],
)
def test_rows_are_counted_over_the_whole_parquet_file(tmp_path, monkeypatch, column, values, message):
    monkeypatch.setattr("prism_jax.scores.files._BATCH", 7)
    half = [0.5] * 40
    columns = {"stream": ["a"] * 40, "step": list(range(40)), "p_need_fast": half, "p_accept_fast": half}
    pq.write_table(pa.table(columns | {column: values}), tmp_path / "x.parquet", row_group_size=11)
    with pytest.raises(ScoresError, match=f"^{tmp_path / 'x.parquet'}, {message}"):
        read_scores(tmp_path / "x.parquet")


def test_unknown_columns_of_parquet_need_not_be_read(tmp_path, caplog):
    columns = {name: [value] for name, value in REQUIRED_ROW.items()}
    pq.write_table(pa.table(columns | {"latency": [1.5]}), tmp_path / "x.parquet")
    assert read_scores(tmp_path / "x.parquet").extra["latency"].tolist() == [1.5]
    assert read_scores(tmp_path / "x.parquet", extra=False).extra == {}
    assert caplog.messages[-1].endswith("columns without a meaning here, not read: latency")


def test_other_suffixes_are_refused(tmp_path):
    for use in (lambda path: read_scores(path), lambda path: write_scores(path, Scores.from_rows([REQUIRED_ROW]))):
        with pytest.raises(ScoresError, match=r"found the suffix '\.csv', expected \.parquet or \.jsonl"):
            use(tmp_path / "x.csv")


def test_columns_of_different_lengths_and_no_rows_are_refused():
    one = {"stream": ["a"], "step": [0], "p_need_fast": [0.5], "p_accept_fast": [0.5]}
    with pytest.raises(ScoresError, match="p_need_fast: found 2 rows, expected 1"):
        Scores.from_columns({**one, "p_need_fast": [0.5, 0.5]})
    with pytest.raises(ScoresError, match=r"step: found the shape \(1, 1\), expected one value per row"):
        Scores.from_columns({**one, "step": np.zeros((1, 1), int)})
    with pytest.raises(ScoresError, match="found no rows"):
        Scores.from_columns({name: [] for name in one})
    with pytest.raises(ScoresError, match="found no rows"):
        Scores.from_columns(one).take(np.array([False]))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    write_scores(path, Scores.from_rows([REQUIRED_ROW]))
    before = path.read_bytes()

    def fail(self, target):
        raise OSError("disk gone")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk gone"):
        write_bytes(path, b"new")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_importing_scores_loads_no_other_part_and_no_jax():
    code = "import prism_jax.scores, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"jax", "flax", "transformers"} & set(loaded)
    ours = {name.split(".")[1] for name in loaded if name.startswith("prism_jax.")}
    assert ours == {"runtime", "scores"}


@pytest.mark.parametrize("column", ["stream", "domain", "persona", "split"])
def test_half_a_surrogate_pair_is_refused_by_row(tmp_path, column):
    rows = [{"stream": "a", "step": i, "p_need_fast": 0.5, "p_accept_fast": 0.5} for i in range(2)]
    rows = [row | {name: "x" for name in ("domain", "persona", "split")} for row in rows]
    rows[1] |= {"stream": "b", column: "half \ud83d"}
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ScoresError, match=f"line 2, {column}: found .*expected text that UTF-8 can encode"):
        read_scores(path)
