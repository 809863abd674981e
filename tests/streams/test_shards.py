"""Many files cut into shards: every stream with steps in exactly one, in order, whatever the files and the size."""

import dataclasses
import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.streams import Event, Step, Stream
from prism_jax.streams.jsonl import StreamError, read_streams, write_streams
from prism_jax.streams.shards import cut, find_files, read_shard


def stream(name, steps=1):
    events = tuple(Event(time=float(i), text="Writes.") for i in range(max(steps, 1)))
    return Stream(id=name, events=events, steps=tuple(Step(event=i) for i in range(steps)))


def write(folder, files):
    """Writes streams with so many steps each, and returns the paths."""
    folder.mkdir(exist_ok=True)
    for number, counts in enumerate(files):
        named = (stream(f"{number}-{place}", steps) for place, steps in enumerate(counts))
        write_streams(folder / f"{number}.jsonl", named)
    return find_files(str(folder))


def accept(_):
    return ()


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=4), st.integers(1, 5))
def test_every_stream_with_steps_is_in_one_shard_in_order(tmp_path_factory, files, most):
    paths = write(tmp_path_factory.mktemp("files"), files)
    streams = [one for path in paths for one in read_streams(path)]
    if not any(one.steps for one in streams):
        with pytest.raises(StreamError, match=r"found no stream with steps in .* `python -m prism_jax label` makes"):
            cut(paths, most, accept)
        return
    found = cut(paths, most, accept)
    read = [read_shard(shard) for shard in found.shards]
    assert [one for part in read for one in part] == [one for one in streams if one.steps]
    assert [len(part) for part in read] == [shard.streams for shard in found.shards]
    assert all(len(part) == most for part in read[:-1])
    assert found.streams == sum(bool(one.steps) for one in streams)
    assert found.decisions == sum(len(one.steps) for one in streams)
    assert [file.streams for file in found.files] == [len(counts) for counts in files]


def test_a_damaged_file_leaves_no_trace_but_its_error(tmp_path):
    paths = write(tmp_path / "all", [[1, 1, 1], [1, 1], [1, 1, 1]])
    without = cut([paths[0], paths[2]], 2, accept)
    with pathlib.Path(paths[1]).open("a") as file:
        file.write('{"id": "last"\n')
    with pytest.raises(StreamError, match=r"1.jsonl:3: found broken JSON"):
        cut(paths, 2, accept)
    found = cut(paths, 2, accept, skip_bad=True)
    (problem,) = found.left_out
    assert problem.startswith(f"{paths[1]}:3: found broken JSON")
    assert dataclasses.replace(found, left_out=()) == without


def test_an_empty_file_and_a_stream_that_cannot_be_used_are_damage(tmp_path):
    paths = write(tmp_path, [[1], [1, 1]])
    (tmp_path / "2.jsonl").write_text("")

    def refuse(one):
        if one.id == "1-1":
            raise ValueError(f"stream {one.id!r}: found 9 tokens, expected at most 8")
        return ()

    found = cut([*paths, str(tmp_path / "2.jsonl")], 2, refuse, skip_bad=True)
    assert [problem.removeprefix(str(tmp_path)) for problem in found.left_out] == [
        "/1.jsonl:2: stream '1-1': found 9 tokens, expected at most 8",
        "/2.jsonl: found an empty file, expected one stream per line",
    ]
    assert found.streams == 1


@pytest.mark.parametrize("skip_bad", [False, True])
def test_an_id_that_stands_in_two_files_names_both_places(tmp_path, skip_bad):
    paths = write(tmp_path, [[1, 1], [1, 0, 1], [1]])
    with pathlib.Path(paths[2]).open("a") as file:
        file.write(json.dumps({"id": "1-1", "events": [{"time": 0, "text": "Reads."}], "steps": []}) + "\n")
    message = rf"^{paths[2]}:2: id: found '1-1' again \(first at {paths[1]}:2\), expected a new id$"
    with pytest.raises(StreamError, match=message):
        cut(paths, 2, accept, skip_bad=skip_bad)


def test_a_file_that_changes_after_it_was_checked_is_not_read(tmp_path):
    (path,) = write(tmp_path, [[1, 1, 1]])
    first, second = cut([path], 2, accept).shards
    lines = (tmp_path / "0.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "0.jsonl").write_text("".join([*lines[:2], lines[2].replace("0-2", "0-7")]))
    assert len(read_shard(first)) == 2
    with pytest.raises(StreamError, match=rf"^{path}:3: found other lines than when the file was checked"):
        read_shard(second)


def test_a_path_names_a_file_a_folder_or_a_glob(tmp_path):
    write(tmp_path / "b", [[1], [1]])
    write(tmp_path / "a", [[1]])
    (tmp_path / "a" / "notes.txt").write_text("")

    def names(pattern):
        return [path.removeprefix(f"{tmp_path}/") for path in find_files(f"{tmp_path}/{pattern}")]

    assert names("b") == names("b/?.jsonl") == ["b/0.jsonl", "b/1.jsonl"]
    assert names("*/*.jsonl") == names("**/*.jsonl") == ["a/0.jsonl", "b/0.jsonl", "b/1.jsonl"]
    assert names("b/1.jsonl") == ["b/1.jsonl"]
    with pytest.raises(FileNotFoundError, match=r"none\*: found no file, expected files of streams"):
        names("none*")
