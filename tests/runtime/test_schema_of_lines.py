"""Lines of JSON: the quick reader and the strict one agree, whatever is written twice, escaped, or out of range."""

import pytest

from prism_jax.runtime.files import JsonError, parse_json
from prism_jax.runtime.schema import read_json


def outcome(read, data):
    try:
        return repr(read(data, "f:1"))
    except JsonError as error:
        return str(error)


@pytest.mark.parametrize(
    "data",
    [
        *(b'{"a": 1, "a": 2}', b'{"a": 1, "\\u0061": 2}', b'[{"b": {"c": 1, "c": ":"}}]', b'{"": 1, "": 2}'),
        *(b'{"a": 1, "a": "\\u003a"}', b'{"a:": ":", "b": "\\u003A"}', b'{"a": 1, "b": 2}', b'\xef\xbb\xbf{"a": 1}'),
        *(b"1e999", b"NaN", b"-Infinity", b"9" * 309, b"-" + b"9" * 400, b"9" * 5000, b"-0", b"0.1", b"01", b"1."),
        *(
            b'"\\ud83d\\ude00"',
            b'"\\ud83d"',
            b'"\x1f"',
            b'"\xff"',
            b"",
            b" ",
            b"{}{}",
            b"[1,]",
            b"[" * 300 + b"]" * 300,
        ),
    ],
)
def test_both_readers_of_json_agree(data):
    assert outcome(read_json, data) == outcome(parse_json, data)
