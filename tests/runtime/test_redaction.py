"""Credentials in URLs are cut wherever a command, a fact or an error is printed or stored."""

import json
import stat
import sys

import pytest

from prism_jax.runtime import command, distributed
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.runtime.shown_text import without_credentials


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://ann:s3cr3t@host/data.jsonl", "https://***@host/data.jsonl"),
        ("s3://AKIA:s3/cr3@t@bucket/a", "s3://***@bucket/a"),
        ("https://host:80/a@b and https://host/a:b@c", "https://host:80/a@b and https://host/a:b@c"),
        ("https://s3cr3t@host:80/x y", "https://***@host:80/x y"),
        ("https://h/a?X-Amz-Signature=s3cr3t&part=2", "https://h/a?X-Amz-Signature=***&part=2"),
        ("https://h/a?part=2&token=s3cr3t", "https://h/a?part=2&token=***"),
        ("'https://h/a?api_key=s3cr3t' --next", "'https://h/a?api_key=***' --next"),
        ("https://h/a?sig=s3cr3t#part", "https://h/a?sig=***#part"),
        ("gs://h/a?access_token=s3cr3t and https://u:p@h", "gs://h/a?access_token=*** and https://***@h"),
        ("X-Amz-Credential https://h/?X-Amz-Credential=AKIA%2F1", "X-Amz-Credential https://h/?X-Amz-Credential=***"),
        ("https://h/a?keyboard=2&tokens=3", "https://h/a?keyboard=2&tokens=3"),
        ("mail ann@host, path runs/a@b?x=1", "mail ann@host, path runs/a@b?x=1"),
    ],
)
def test_credentials_are_cut_and_everything_else_stays(text, expected):
    assert without_credentials(text) == expected
    assert without_credentials(expected) == expected


SOURCE = "https://ann:s3cr3t@host/streams.jsonl?token=s3cr3t"


def test_the_stored_command_has_no_credentials(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", f"--config.data.source={SOURCE}", "--workdir=run"])
    made = provenance()
    assert "s3cr3t" not in json.dumps([made, as_facts(made)])
    assert "https://***@host/streams.jsonl?token=***" in made["command"]
    assert "--workdir=run" in made["command"]


def test_an_error_has_no_credentials(capsys):
    assert command._fail(f"{SOURCE}: no such file") == 1
    assert capsys.readouterr().err == "error: https://***@host/streams.jsonl?token=***: no such file\n"


@pytest.mark.parametrize(
    ("mode", "below", "found"),
    [
        (0o755, "", None),
        (0o777, "", "writable by others (mode 777)"),
        (0o1777, "", "writable by others (mode 1777)"),
        (0o777, "cache", "writable by others (mode 777)"),  # anybody can replace the folder below it
        (0o1777, "cache", None),
    ],
)
def test_a_cache_that_others_can_write_to_is_named(tmp_path, mode, below, found):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    said = distributed.writable_by_others(str(place / below))
    assert said == (f"{place} {found}" if found else None)
    assert stat.S_IMODE(place.stat().st_mode) == mode


def test_a_cache_in_a_bucket_is_not_judged():
    assert distributed.writable_by_others("gs://bucket/cache") is None
