"""Reading files that somebody else may have written: only regular ones, and no more of them than is bounded."""

import os
import pathlib
import socket

import pytest
from etils import epath

from prism_jax.runtime import files
from prism_jax.runtime.files import (
    JsonError,
    check_folder_of,
    check_outputs,
    open_regular,
    parse_json,
    read_bounded,
    read_lines,
    read_object,
    temporary_beside,
    writing,
)


def fifo(path):
    os.mkfifo(path)


def listening(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def linked_to(target):
    return lambda path: path.symlink_to(target)


def sparse(size):
    def make(path):
        with path.open("wb") as file:
            file.truncate(size)

    return make


NO_FILES = {
    "an endless device": (linked_to("/dev/zero"), "found a device"),
    "a random device": (linked_to("/dev/urandom"), "found a device"),
    "an empty device": (linked_to("/dev/null"), "found a device"),
    "a FIFO": (fifo, "found a FIFO"),
    "a socket": (listening, "found a socket"),
    "a folder": (pathlib.Path.mkdir, "found a folder"),
}


READERS = [read_bounded, lambda path: list(read_lines(path)), lambda path: read_object(path, "x")]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_regular_file_is_refused_unread(tmp_path, kind, read):
    make, found = NO_FILES[kind]
    make(tmp_path / "it")
    with pytest.raises(JsonError, match=rf"^{tmp_path}/it: {found}, expected .* \(a regular file or a link to one\)$"):
        read(tmp_path / "it")


def test_a_link_to_a_file_is_as_good_as_the_file(tmp_path):
    (tmp_path / "data").write_bytes(b"1\n2\n")
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "chain").symlink_to("link")
    assert read_bounded(tmp_path / "chain") == b"1\n2\n"
    assert list(read_lines(tmp_path / "chain")) == [(1, b"1\n"), (2, b"2\n")]


@pytest.mark.parametrize("make", [lambda path: None, linked_to("/nowhere")])
def test_a_missing_file_is_named_with_what_was_expected(tmp_path, make):
    make(tmp_path / "it")
    with pytest.raises(FileNotFoundError, match=rf"^{tmp_path}/it: no such file, expected a calibration$"):
        open_regular(tmp_path / "it", expected="a calibration")


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "it").symlink_to("it")
    with pytest.raises(OSError, match="it"):
        read_bounded(tmp_path / "it")


@pytest.mark.parametrize("read", READERS)
def test_an_enormous_file_is_refused_unread(tmp_path, read):
    sparse(2**40)(tmp_path / "it")
    with pytest.raises(JsonError, match=r"more than 67108864 bytes"):
        read(tmp_path / "it")


def test_a_file_that_is_replaced_by_a_fifo_while_it_is_opened_is_refused(tmp_path, monkeypatch):
    fifo(tmp_path / "it")
    monkeypatch.setattr(files, "check_regular", lambda *_: None)
    with pytest.raises(JsonError, match="found it replaced while it was opened"):
        open_regular(tmp_path / "it")


def test_a_file_whose_size_is_not_known_is_read_to_its_bound(tmp_path):
    """Such as those of /proc, whose size is 0."""
    whole = read_bounded("/proc/self/status")
    assert b"VmPeak" in whole
    with pytest.raises(JsonError, match="more than 10 bytes"):
        read_bounded("/proc/self/status", most=10)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9" * 308, int("9" * 308)),
        ("1" + "0" * 308, 10**308),
        ("9" * 309, float("inf")),
        ("-" + "9" * 400, float("-inf")),
        ("1e999", float("inf")),
        ('["' + "1" * 400 + '", 7]', ["1" * 400, 7]),
    ],
)
def test_an_integer_beyond_doubles_is_infinite_as_any_other_number(text, value):
    found = parse_json(text.encode(), "it")
    assert found == value and type(found) is type(value)


def test_several_files_change_together_or_not_at_all(tmp_path):
    paths = [tmp_path / name for name in "ab"]
    files.write_files(dict.fromkeys(paths, b"old"))
    with pytest.raises(TypeError):
        files.write_files({paths[0]: b"new", paths[1]: 3})  # which cannot be written
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old", "b": b"old"}


def test_what_cannot_be_written_is_said_with_its_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/no/gate.json: found no folder {tmp_path}/no, expected an"):
        files.write_json(tmp_path / "no" / "gate.json", {})
    with pytest.raises(IsADirectoryError, match=f"{tmp_path}: found a folder, expected a file or a new path"):
        files.write_text(tmp_path, "")


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_of_the_greatest_length_is_read_and_a_byte_more_refused(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(files, "MOST_LINE_BYTES", 8)
    longest = (b"x" * 8)[: 8 - len(ending)] + ending
    (tmp_path / "lines").write_bytes(b"first\n" + longest)
    assert list(read_lines(tmp_path / "lines")) == [(1, b"first\n"), (2, longest)]
    (tmp_path / "lines").write_bytes(b"first\nx" + longest)
    with pytest.raises(JsonError, match=r"lines:2: found a line of more than 8 bytes"):
        list(read_lines(tmp_path / "lines"))


def test_what_killed_writers_left_is_removed_where_nobody_writes(tmp_path):
    path, other = epath.Path(tmp_path / "out.jsonl"), epath.Path(tmp_path / "out.rows.jsonl")
    left = [temporary_beside(one) for one in (path, path, other)]
    mine = tmp_path / ".out.jsonl.mine.partial"
    for one in (*left, mine):
        one.write_text("half")
    with writing(other):
        with writing(path):
            assert left[0].exists(), "another block writes in the folder, and the file may be its own"
        assert not left[2].exists()
    with writing(path):
        assert list(tmp_path.iterdir()) == [mine]
        partial = temporary_beside(path)
        partial.write_text("now")
        with writing(path, other):
            assert partial.exists()


def test_outputs_are_files_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text("")
    (tmp_path / "link").symlink_to("in.jsonl")
    check_outputs(
        {"out": "out.jsonl", "rows_out": None}, {"streams": "in.jsonl", "human": "in.jsonl", "baseline": None}
    )
    for path in ("in.jsonl", "link", f"{tmp_path}/none/../in.jsonl"):
        with pytest.raises(ValueError, match=f"^--out: found {path}, the file of --streams, expected another one$"):
            check_outputs({"out": path}, {"streams": "in.jsonl"})
    with pytest.raises(ValueError, match=r"^--rows_out: found ./x, the file of --out, expected another one$"):
        check_outputs({"out": "x", "rows_out": "./x"}, {})


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("none/x", FileNotFoundError, "none/x: found no folder .*none, expected an existing one"),
        ("folder", IsADirectoryError, "folder: found a folder, expected a file or a new path"),
        ("folder/x", PermissionError, "folder/x: found the folder .*folder, which is read-only, expected one to write"),
    ],
)
def test_where_no_file_can_be_written_is_said_beforehand(tmp_path, monkeypatch, name, error, message):
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path / "folder"))
    check_folder_of(tmp_path / "new")
    with pytest.raises(error, match=message):
        check_folder_of(tmp_path / name)
