"""Digests of a checkpoint's files: any changed byte is found, and the checkpoint before it is taken."""

import hashlib
import json
import pathlib

import chex
import pytest
from saved_checkpoints import BEST, best, latest, state_of

from prism_jax.runtime.digests import NAME


def files(step):
    return sorted(path for path in pathlib.Path(step).rglob("*") if path.is_file())


def test_every_file_but_those_that_orbax_writes_last_has_its_digest(copy):
    step = copy / "checkpoints" / "6"
    expected = {
        str(path.relative_to(step)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files(step)
        if path not in {step / "_CHECKPOINT_METADATA", step / "commit_success.txt", step / NAME}
    }
    assert json.loads((step / NAME).read_text()) == expected
    assert {"data/metadata", "config/metadata", "metrics/metrics"} < expected.keys()
    assert any(name.startswith("state/d/") for name in expected)


@pytest.mark.parametrize("name", ["state/d", "data/metadata", "config/metadata", "metrics/metrics"])
def test_a_changed_checkpoint_is_renamed_and_the_one_before_it_is_read(copy, warnings, name):
    path = next(path for path in files(copy / "checkpoints" / "6" / name)) if name == "state/d" else None
    path = path or copy / "checkpoints" / "6" / name
    content = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(content) if name != "state/d" and chr(byte) in "45"]
    content[digits[-1] if digits else len(content) // 2] ^= 1  # another digit leaves JSON valid
    path.write_bytes(content)
    found = latest(copy)
    assert (found.step, found.data) == (4, {"position": 4})
    chex.assert_trees_all_equal(found.state, state_of(4))
    relative = path.relative_to(copy / "checkpoints" / "6")
    assert warnings() == [
        f"{copy}/checkpoints/6: found {relative} that differs from its digest in digests.json, expected a whole "
        "checkpoint; renamed to 6.damaged, resuming from step 4"
    ]


def test_a_changed_score_does_not_choose_another_checkpoint_in_silence(copy, warnings):
    assert best(copy, BEST).step == 6
    metrics = copy / "checkpoints" / "6" / "metrics" / "metrics"
    metrics.write_text(metrics.read_text().replace("0.7", "0.9"))
    assert best(copy, BEST).step == 4
    assert "checkpoints/6: found metrics/metrics that differs from its digest" in warnings()[0]


def test_a_checkpoint_of_an_older_version_is_read_with_a_note(copy, warnings):
    (copy / "checkpoints" / "6" / NAME).unlink()
    found = latest(copy)
    chex.assert_trees_all_equal(found.state, state_of(6))
    assert warnings() == [
        f"{copy}/checkpoints/6: found no digests.json, as older versions wrote it: changed bytes are not detected"
    ]


@pytest.mark.parametrize("content", ["", "[]", '{"state/_METADATA": 3}'])
def test_damaged_digests_are_a_damaged_checkpoint(copy, warnings, content):
    (copy / "checkpoints" / "6" / NAME).write_text(content)
    assert latest(copy).step == 4
    assert (copy / "checkpoints" / "6.damaged").exists()
    assert "digests.json" in warnings()[0]
