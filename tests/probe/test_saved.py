import dataclasses
import json

import numpy as np
import pytest
from etils import epath
from offers import make_stream

from prism_jax.decision.calibration import Temperature
from prism_jax.evaluation.fits import Calibration, SignalFit, write_calibration
from prism_jax.probe import saved
from prism_jax.probe.fitting import StreamInputs, fit_probe
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.saved import SavedProbe, load_probe, save_probe
from prism_jax.probe.words import describe
from prism_jax.runs import probe_export
from prism_jax.runtime.digests import write_digests
from prism_jax.runtime.files import read_bounded

TEST = describe(make_stream(20))


@pytest.fixture(scope="module")
def probes():
    """A probe on words, and one on words and states."""
    seen = [describe(make_stream(number)) for number in range(4)]
    states = {one.stream.id: np.random.default_rng(0).normal(size=(len(one.step), 6)) for one in (*seen, TEST)}
    with_states = fit_probe(
        [StreamInputs(one, states[one.stream.id]) for one in seen], FitConfig(), StatesConfig(components=2)
    )
    return {
        None: (fit_probe([StreamInputs(one) for one in seen], FitConfig(), StatesConfig()), StreamInputs(TEST)),
        "model": (with_states, StreamInputs(TEST, states[TEST.stream.id])),
    }


@pytest.mark.parametrize("model", [None, "model"])
def test_a_loaded_probe_predicts_the_same(probes, tmp_path, model):
    probe, seen = probes[model]
    about = None if model is None else {"blocks": [1, 2]}
    save_probe(tmp_path / "probe", SavedProbe(probe, about))
    loaded = load_probe(tmp_path / "probe")
    assert loaded.states == about
    for ours, theirs in zip(loaded.probe.predict(seen), probe.predict(seen), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["probe"]
    assert sorted(path.name for path in (tmp_path / "probe").iterdir()) == [
        "digests.json",
        "ngrams.json",
        "probe.json",
        "weights.safetensors",
    ]
    with pytest.raises(FileExistsError):
        save_probe(tmp_path / "probe", SavedProbe(probe))


def edited(*gone, sealed=True, **changes):
    """Changes probe.json, and the list of digests with it unless only the list is to notice."""

    def change(folder):
        head = json.loads((folder / "probe.json").read_text()) | changes
        (folder / "probe.json").write_text(json.dumps({key: head[key] for key in head if key not in gone}))
        if sealed:
            write_digests(epath.Path(folder))

    return change


def truncated(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (edited(sealed=False, intercepts={}), "probe.json: found a missing, changed or unlisted file, .*: run `python"),
        (truncated("weights.safetensors"), "weights.safetensors: found a missing, changed or unlisted file"),
        (truncated("probe.json"), "probe.json: found a missing, changed or unlisted file"),
        (lambda folder: (folder / "digests.json").unlink(), "digests.json: no such file, expected what `python"),
        (lambda folder: (folder / "ngrams.json").unlink(), None),
    ],
)
def test_a_damaged_probe_is_refused(probes, tmp_path, damage, found):
    save_probe(tmp_path / "probe", SavedProbe(probes[None][0]))
    damage(tmp_path / "probe")
    with pytest.raises((FileNotFoundError, ValueError), match=found):
        load_probe(tmp_path / "probe")


def test_what_was_read_is_compared_and_not_the_file_that_stands_there_later(probes, tmp_path, monkeypatch):
    save_probe(tmp_path / "probe", SavedProbe(probes[None][0]))
    path = tmp_path / "probe" / "probe.json"
    whole = path.read_bytes()
    edited(sealed=False, need_target="given_accept")(tmp_path / "probe")

    def replaced(place, *arguments):
        data = read_bounded(place, *arguments)
        path.write_bytes(whole)
        return data

    monkeypatch.setattr(saved, "read_bounded", replaced)
    with pytest.raises(ValueError, match=r"probe.json: found a missing, changed or unlisted file"):
        load_probe(tmp_path / "probe")


def test_what_need_means_is_kept(probes, tmp_path):
    for target in ("marginal", "given_accept"):
        save_probe(tmp_path / target, SavedProbe(dataclasses.replace(probes[None][0], need_target=target)))
        assert load_probe(tmp_path / target).probe.need_target == target


def test_maps_of_another_meaning_of_need_are_not_exported(tmp_path):
    path, fit = epath.Path(tmp_path / "calibration.json"), SignalFit(Temperature(1.5), 0.5, 40, 40.0)
    write_calibration(path, Calibration(fit, fit))
    assert probe_export._maps(path, "marginal")["need_fast"]["temperature"] == 1.5
    with pytest.raises(ValueError, match=r"calibration.json, need_target: found marginal .*, expected given_accept"):
        probe_export._maps(path, "given_accept")
