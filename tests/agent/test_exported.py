"""prism.json as the agent reads it: what it gives, and the first thing that is wrong with it."""

import json
from typing import get_args

import pytest
from exported_folder import prism, write
from fake_reader import MAPS

from prism_jax.agent.exported import NEED_TARGETS, ExportedError, check_slots, read_exported
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.runtime.digests import DigestError
from prism_jax.scores import schema as scores
from prism_jax.training.loss_config import NeedTarget


def test_it_gives_maps_operating_point_and_fingerprints(tmp_path):
    found = read_exported(write(tmp_path / "a"))
    assert (found.point, found.maps, found.has_slow_pass) == (OperatingPoint(), MAPS, True)
    assert (found.thinking, found.writing) == (None, None)
    lengths = {name: len(digest) for name, digest in found.fingerprints.items()}
    assert lengths == dict.fromkeys(("model", "calibration", "config"), 64)
    more = {**prism(), "writing": {"field_tokens": 40}, "temperatures": {"need_fast": 1.3}}
    other = read_exported(write(tmp_path / "b", more))
    assert other.writing == {"field_tokens": 40}
    assert found.writes_responses and other.writes_responses
    assert not read_exported(write(tmp_path / "c", {**prism(), "responses": False})).writes_responses
    assert not read_exported(write(tmp_path / "d", prism(slow=False))).has_slow_pass
    assert other.fingerprints["calibration"] == found.fingerprints["calibration"]
    assert other.fingerprints["model"] != found.fingerprints["model"]


def test_it_says_what_the_slow_pass_does(tmp_path):
    content = prism()
    content["calibration"]["thinking"] = {"accept": 1.0, "need": 0.5, "both": 0.2, "tokens": 30.5, "count": 400}
    assert read_exported(write(tmp_path / "a", content)).thinking == ((1.0, 0.5, 0.2), 30.5)
    content["calibration"]["thinking"]["tokens"] = None
    assert read_exported(write(tmp_path / "a", content)).thinking is None


def test_each_fingerprint_follows_its_part(tmp_path):
    base = read_exported(write(tmp_path / "a"))
    colder, dearer = prism(), prism()
    colder["calibration"]["need_fast"]["temperature"] = 2.0
    dearer["decision"]["c_fn"] = 4.0
    for name, content, part in (("b", colder, "calibration"), ("c", dearer, "config")):
        other = read_exported(write(tmp_path / name, content)).fingerprints
        assert {key for key in other if other[key] != base.fingerprints[key]} == {"model", part}


def test_a_file_that_was_changed_after_the_export_is_refused(tmp_path):
    folder = write(tmp_path / "m")
    content = json.loads((folder / "prism.json").read_text())
    content["decision"]["c_fn"] = 99.0
    (folder / "prism.json").write_text(json.dumps(content))
    with pytest.raises(DigestError, match=r"prism\.json: found a missing, changed or unlisted file, expected what dig"):
        read_exported(folder)


@pytest.mark.parametrize("name", ["prism.json", "digests.json"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = write(tmp_path / "m")
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{folder}/{name}: no such file"):
        read_exported(folder)


def test_slots_of_another_template_are_named(tmp_path):
    found = read_exported(write(tmp_path / "m"))
    slots = prism()["slots"]
    check_slots(found, slots, tmp_path)
    for other, message in (
        ({**slots, "yes": {"text": " yes", "id": 9}}, "prism.json: slots.yes.id: found 3, expected 9, as the template"),
        ({**slots, "system": "Look."}, "slots.system: found 'Watch.', expected 'Look.'"),
        ({**slots, "need": {}}, "slots.need: found no such key"),
        ({"system": "Watch."}, "slots.yes: found a key that the template does not have"),
    ):
        with pytest.raises(ExportedError, match=message):
            check_slots(found, other, tmp_path)


def test_what_p_need_may_estimate_is_the_same_in_exports_scores_and_training():
    assert NEED_TARGETS == scores.NEED_TARGETS == get_args(NeedTarget)
