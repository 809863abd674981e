"""GGUF headers: equal to what the gguf package reads, cheap for small files whatever they claim, errors of one line."""

import pathlib
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.runtime.gguf_file import read_gguf_header
from prism_jax.student.prompting.gguf_tokenizer import read_gguf_tokenizer

gguf = pytest.importorskip("gguf", reason="the gguf package is an extra, and the oracle")


# Counts calls in a process of its own, because the tests' checks of shapes make many.
COUNT = """
import sys, pathlib
from prism_jax.student.prompting.gguf_tokenizer import read_gguf_tokenizer
calls = 0
def profile(frame, event, arg):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(profile)
try:
    read_gguf_tokenizer(pathlib.Path(sys.argv[1]))
except ValueError:
    pass
sys.setprofile(None)
print(calls)
"""


def number(code, value):
    return struct.pack(f"<{code}", value)


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return number("Q", len(raw)) + raw


def start(fields=1, tensors=0, version=3):
    return b"GGUF" + number("I", version) + number("Q", tensors) + number("Q", fields)


def array(kind, count, content=b"", name="tokenizer.ggml.tokens"):
    """One field that is an array."""
    return text(name) + number("I", 9) + number("I", kind) + number("Q", count) + content


def read(content, folder):
    path = folder / "a.gguf"
    path.write_bytes(content)
    return read_gguf_header(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A file with a field of every type and three tensors, and what the gguf package reads from it."""
    path = tmp_path_factory.mktemp("gguf") / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for kind, value in (("uint8", 7), ("int8", -7), ("uint16", 9), ("int16", -9), ("uint32", 11), ("int32", -11)):
        getattr(writer, f"add_{kind}")(f"a.{kind}", value)
    writer.add_uint64("a.uint64", 1 << 40)
    writer.add_int64("a.int64", -(1 << 40))
    writer.add_float32("a.float32", 0.1)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "naïve 你好")
    writer.add_array("a.texts", ["", "b", "😀"])
    writer.add_array("a.numbers", [1, -2, 3])
    rng = np.random.default_rng(0)
    for i, shape in enumerate([(3, 32), (5,), (2, 64)]):
        writer.add_tensor(f"t{i}", rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, gguf.GGUFReader(path)


def test_all_is_what_the_package_reads(written):
    path, theirs = written
    ours = read_gguf_header(path)
    want = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    got = {name: list(value) if isinstance(value, np.ndarray) else value for name, value in ours.fields.items()}
    assert got == want
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.shape == tuple(reversed(tensor.shape.tolist()))
        assert (found.start, found.kind) == (tensor.data_offset, tensor.tensor_type)
        values = ours.data[found.start : found.start + tensor.n_bytes].view(np.float32).reshape(found.shape)
        np.testing.assert_array_equal(values, tensor.data)


@pytest.mark.parametrize("kind", [0, 4, 8, 12], ids=["uint8", "uint32", "text", "float64"])
def test_a_small_file_that_claims_a_huge_array_costs_little(kind, tmp_path):
    """The memory of an error is not that of the claimed entries, nor many times that of the file's own."""
    content = start() + array(kind, 1 << 40, bytes(100_000))
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a\.gguf: found a truncated or corrupt GGUF file \(tokenizer\.ggml\.tok"):
            read_gguf_tokenizer(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(content)


def test_a_vocabulary_is_read_in_a_few_calls_per_token(tmp_path):
    """A guard on speed that no clock can upset: the number of calls of functions, Python's own included."""
    count = 3000
    tokens = b"".join(text(f"token {i}") for i in range(count))
    path = tmp_path / "a.gguf"
    path.write_bytes(
        start(2) + array(8, count, tokens) + array(5, count, bytes(4 * count), "tokenizer.ggml.token_type")
    )
    done = subprocess.run([sys.executable, "-c", COUNT, str(path)], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 40 * count


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot mmap an empty file"),
        (b"PK" * 50, "it does not begin with GGUF"),
        (start(version=9), "version 9; expected little-endian version 2 or 3"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "version 50331648, of a big-endian file; expected little-endian"),
        (start(1 << 40), "fields: 1099511627776 entries; expected at most 65536"),
        (start(100), "fields: 1300 bytes at 24; only 0 are left"),
        (start(0, 1 << 40), "tensors: 1099511627776 entries; expected at most 65536"),
        (
            start() + number("Q", 1 << 60) + bytes(40),
            "field name: a text of 1152921504606846976 bytes; expected at most",
        ),
        (start() + text("a") + number("I", 8) + number("Q", 900), "a: 900 bytes at 45; only 0 are left"),
        (start() + text("a") + number("I", 77) + bytes(8), "a of unknown type 77"),
        (start() + array(9, 1, bytes(50)), "tokenizer.ggml.tokens: an array of type 9; expected numbers or texts"),
        (start() + array(0, 1 << 23, bytes(9)), "tokenizer.ggml.tokens: 8388608 entries; expected at most 4194304"),
        (start() + array(10, 5, bytes(39)), "tokenizer.ggml.tokens: 40 bytes at 69; only 39 are left"),
        (start() + text("a") + number("I", 8) + text(b"\xff\xfe"), "a: invalid start byte of UTF-8"),
        (start(2) + (text("a") + number("I", 0) + b"1") * 2, "field a twice"),
        (start() + text("general.alignment") + number("I", 4) + number("I", 3), "general.alignment of 3; expected a"),
        (start(0, 1) + text("t") + number("I", 900) + bytes(90), "t: 900 entries; expected at most 4"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_short_line(content, reason, tmp_path):
    with pytest.raises(ValueError) as error:
        read(content, tmp_path)
    message = str(error.value)
    assert message.startswith(f"{tmp_path}/a.gguf: found a truncated or corrupt GGUF file ({reason}")
    assert message.endswith("), expected a whole one") and "\n" not in message


def test_a_long_name_is_shortened_and_escaped(tmp_path):
    with pytest.raises(ValueError) as error:
        read(start() + text("\x1b[31m\n" + "a" * 60_000) + number("I", 77), tmp_path)
    assert len(str(error.value)) < len(str(tmp_path)) + 250 and str(error.value).isprintable()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"b\.gguf: no such file, expected a GGUF file$"):
        read_gguf_header(tmp_path / "b.gguf")


@settings(max_examples=200)
@given(data=st.data())
def test_any_change_of_the_header_is_read_or_refused(data, written, tmp_path_factory):
    """Changed and cut bytes give a header or a ValueError of one line, and nothing else."""
    path, _ = written
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, 900))] = data.draw(st.integers(0, 255))
    changed = pathlib.Path(tmp_path_factory.getbasetemp()) / "changed.gguf"
    changed.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        read_gguf_header(changed)
    except ValueError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
