import dataclasses
import json

import numpy as np
import pytest
from offers import make_stream

from prism_jax.probe.config import FitConfig, StatesConfig
from prism_jax.probe.fitting import Seen, fit_probe
from prism_jax.probe.saved import SavedProbe, SavedProbeError, load_probe, save_probe
from prism_jax.probe.words import describe

TEST = describe(make_stream(20))


@pytest.fixture(scope="module")
def probes():
    """A probe on words, and one on words and states."""
    seen = [describe(make_stream(number)) for number in range(4)]
    states = {one.stream.id: np.random.default_rng(0).normal(size=(len(one.step), 6)) for one in (*seen, TEST)}
    with_states = fit_probe([Seen(one, states[one.stream.id]) for one in seen], FitConfig(), StatesConfig(components=2))
    return {
        None: (fit_probe([Seen(one) for one in seen], FitConfig(), StatesConfig()), Seen(TEST)),
        "model": (with_states, Seen(TEST, states[TEST.stream.id])),
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
        "ngrams.json",
        "probe.json",
        "weights.safetensors",
    ]
    with pytest.raises(FileExistsError):
        save_probe(tmp_path / "probe", SavedProbe(probe))


def edited(**changes):
    def change(folder):
        head = json.loads((folder / "probe.json").read_text())
        (folder / "probe.json").write_text(json.dumps({**head, **changes}))

    return change


def truncated(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (edited(format=2), "probe.json: format: found 2, expected 1"),
        (edited(columns={"accept": ["newest"]}), "probe.json: columns.accept: found other columns"),
        (edited(maps={"accept": {"a": 0, "b": 1}}), "probe.json: maps.need: found None"),
        (edited(maps={"accept": {"a": "0", "b": 1}}), "probe.json: maps.accept.a: found '0', expected a finite number"),
        (edited(intercepts={}), "probe.json: intercepts.accept: found None, expected a finite number"),
        (edited(states={}), "weights.safetensors: states.mean: found no such tensor"),
        (edited(need_target="joint"), "probe.json: need_target: found 'joint', expected one of marginal, given_accept"),
        (edited(window={"events": 9}), "probe.json: window: found {'events': 9}, expected .*: train the probe again"),
        (edited(more=1), "probe.json: more: found an unknown key"),
        (edited(digests={}), "ngrams.json: found the SHA-256 .* expected None"),
        (truncated("weights.safetensors"), "weights.safetensors: found the SHA-256"),
        (truncated("probe.json"), ""),
        (lambda folder: (folder / "ngrams.json").unlink(), None),
    ],
)
def test_a_damaged_probe_is_refused(probes, tmp_path, damage, found):
    save_probe(tmp_path / "probe", SavedProbe(probes[None][0]))
    damage(tmp_path / "probe")
    if found == "":  # a lost final newline is still the whole file
        load_probe(tmp_path / "probe")
        return
    with pytest.raises(FileNotFoundError if found is None else SavedProbeError, match=found):
        load_probe(tmp_path / "probe")


def test_a_probe_without_a_window_loads_and_sees_this_one(probes, tmp_path):
    probe, seen = probes[None]
    save_probe(tmp_path / "probe", SavedProbe(probe))
    path = tmp_path / "probe" / "probe.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "window"}))
    for ours, theirs in zip(load_probe(tmp_path / "probe").probe.predict(seen), probe.predict(seen), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_what_need_means_is_kept_and_an_older_probe_has_the_unconditional_one(probes, tmp_path):
    for target in ("marginal", "given_accept"):
        save_probe(tmp_path / target, SavedProbe(dataclasses.replace(probes[None][0], need_target=target)))
        assert load_probe(tmp_path / target).probe.need_target == target
    path = tmp_path / "given_accept" / "probe.json"
    head = json.loads(path.read_text())
    del head["need_target"]
    path.write_text(json.dumps(head))
    assert load_probe(tmp_path / "given_accept").probe.need_target == "marginal"
