"""Where the system takes no more of a file, the error names it, and nothing is left."""

import contextlib
import resource

import pytest

from prism_jax.agent.state.places import note_made
from prism_jax.runs import sharded
from prism_jax.runtime.files import write_bytes
from prism_jax.streams import Event, Stream
from prism_jax.streams.jsonl import write_streams

LONG = Stream(id="a", events=(Event(time=0.0, text="x" * 10**5),))


@contextlib.contextmanager
def short():
    """Lets this process write files of 1,000 bytes at most, but not into a longer log of the tests."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "write", [lambda path: write_bytes(path, bytes(10**5)), lambda path: write_streams(path, [LONG])]
)
def test_a_file_that_is_written_is_named(tmp_path, write):
    with short(), pytest.raises(OSError, match=f"File too large: '{tmp_path}/file'$"):
        write(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_partition_is_noted_as_a_whole_or_an_error_says_so(tmp_path):
    (tmp_path / "made.txt").write_text("00000 abcd\n" * 90)  # 990 bytes
    with short(), pytest.raises(OSError, match=f"File too large: '{tmp_path}/made.txt'$"):
        note_made(tmp_path, 1, "0123456789abcdef")


def test_a_worker_names_the_folder_of_its_results(tmp_path, monkeypatch):
    monkeypatch.setattr(sharded, "state_of", lambda part, work: bytes(10**5))
    monkeypatch.setitem(sharded._loaded, f"{tmp_path}/work", None)
    with short(), pytest.raises(OSError, match=f"File too large: '{tmp_path}'$"):
        sharded._worker(0, f"{tmp_path}/work")
