"""Checkpoints: damaged ones are named, renamed by training, and replaced by the newest one that can be read."""

import dataclasses
import pathlib
import re

import chex
import jax
import orbax.checkpoint as ocp
import pytest
import tiny
from saved_checkpoints import BEST, CONFIG, abstract, best, latest, save, state_of

from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.runtime.digests import write_digests
from prism_jax.training.checkpoints.checkpoint import CheckpointError, parameters_alone, steps
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.run_config import MeshConfig
from prism_jax.training.workdir import Workdir


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in pathlib.Path(folder).rglob("*")
    }


def cut(pattern):
    def damage(step):
        for path in pathlib.Path(step).rglob(pattern):
            if path.is_file():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def emptied(name):
    def damage(step):
        (step / name).rmtree()
        (step / name).mkdir()

    return damage


def replaced(name, content):
    def damage(step):
        if (step / name).is_dir():
            (step / name).rmtree()
        (step / name).write_text(content)

    return damage


DAMAGE = {
    "emptied": (emptied(""), "no state/ in it"),
    "emptied state": (emptied("state"), "no state/ in it"),
    "no data": (lambda step: (step / "data").rmtree(), "no data/ in it"),
    "no config": (lambda step: (step / "config").rmtree(), "no config/ in it"),
    "a file for the state": (replaced("state", ""), "no state/ in it"),
    "another position": (replaced("data/metadata", "[]"), "[] in data/, no position in the data"),
    "another config": (replaced("config/metadata", "[]"), "[] in config/, no config"),
    "config cut": (cut("config/metadata"), "what cannot be restored (JSONDecodeError: "),
    "every file cut": (cut("*"), "metrics/metrics: found broken JSON at column "),
    "arrays cut": (cut("d/*"), "what cannot be restored (ValueError: OUT_OF_RANGE: "),
    "no arrays": (lambda step: (step / "state" / "d").rmtree(), "what cannot be restored (ValueError: NOT_FOUND: "),
    "metadata cut": (cut("state/_METADATA"), "what cannot be restored (JSONDecodeError: "),
    "score cut": (cut("metrics/metrics"), "metrics/metrics: found broken JSON at column "),
    "another score": (replaced("metrics/metrics", '{"validation_nll": "1"}'), "validation_nll = '1' in metrics/"),
}


SOME = ("emptied", "every file cut", "arrays cut", "another score")
"""Tried in the fast tests."""


@pytest.mark.parametrize(
    "case", [case if case in SOME else pytest.param(case, marks=pytest.mark.slow) for case in DAMAGE]
)
def test_a_damaged_newest_checkpoint_is_replaced_by_the_previous_one(copy, warnings, case):
    damage, found = DAMAGE[case]
    damage(copy / "checkpoints" / "6")
    write_digests(copy / "checkpoints" / "6")  # so that the damage itself is found, as in checkpoints without digests
    before = files(copy)
    start = re.escape(f"{copy}/checkpoints/6: found {found}") + ".*, expected a whole checkpoint; "
    evaluated = best(copy)
    assert (evaluated.step, evaluated.data) == (4, {"position": 4})
    chex.assert_trees_all_equal(evaluated.state, state_of(4))
    (message,) = warnings()
    assert re.fullmatch(start + "reading step 4 instead", message)
    assert len(message) < 700
    assert files(copy) == before  # evaluation changes nothing

    resumed = latest(copy)
    chex.assert_trees_all_equal(resumed, evaluated)
    assert re.fullmatch(start + r"renamed to 6\.damaged, resuming from step 4", warnings()[1])
    assert files(copy) == {
        name.replace("checkpoints/6", "checkpoints/6.damaged"): text for name, text in before.items()
    }
    assert latest(copy).step == 4
    assert len(warnings()) == 2  # only one warning per damaged checkpoint
    save(copy, {6: None})
    assert best(copy).step == 6
    assert (copy / "checkpoints" / "6.damaged").exists()


def test_a_deleted_newest_checkpoint_is_replaced_too(copy):
    (copy / "checkpoints" / "6").rmtree()
    assert best(copy).step == latest(copy).step == 4


def test_parameters_are_read_without_the_state_of_the_optimizer(copy):
    found = best(copy, of=parameters_alone(abstract())).state
    chex.assert_trees_all_equal((found.step, found.params), state_of(6)[:2])
    assert set(jax.tree.leaves(found.optimizer)) == {...}


def test_an_interrupted_save_is_ignored_and_deleted(copy):
    cut_off = (copy / "checkpoints" / "6").rename(copy / "checkpoints" / "6.orbax-checkpoint-tmp")
    assert steps(copy / "checkpoints") == [4, 2]
    assert latest(copy).step == 4
    save(copy, {6: None})
    assert not cut_off.exists()
    assert steps(copy / "checkpoints") == [6, 4, 2]


def test_without_a_readable_checkpoint_an_error_is_raised_and_nothing_is_renamed(copy):
    for step in (2, 4, 6):
        emptied("state")(copy / "checkpoints" / str(step))
    before = files(copy)
    for read in (latest, best):
        with pytest.raises(CheckpointError) as caught:
            read(copy)
        assert str(caught.value) == (
            f"{copy}/checkpoints: found no readable checkpoint among 3 (newest: {copy}/checkpoints/6: found no state/ "
            "in it, expected a whole checkpoint), expected one; move the folder away and train again from the beginning"
        )
    assert files(copy) == before


def test_an_older_checkpoint_with_a_damaged_score_is_renamed_and_training_resumes(copy, warnings):
    cut("metrics/metrics")(copy / "checkpoints" / "2")
    assert best(copy, BEST).step == 6
    assert "reading step 6 instead" in warnings()[0]
    assert latest(copy, BEST).step == 6
    assert "renamed to 2.damaged, resuming from step 6" in warnings()[1]
    save(copy, {8: 0.5}, BEST)
    assert steps(copy / "checkpoints") == [8, 6, 4]


@pytest.mark.slow
def test_the_best_checkpoints_stay_beside_the_newest_and_are_evaluated(tmp_path):
    scores = {1: 0.9, 2: 0.5, 3: 0.7, 4: 0.6, 5: 0.8, 6: None}
    config = tiny.with_training(CONFIG, keep=2, keep_best=2)
    once, reopened = tmp_path / "once", tmp_path / "reopened"
    save(once, scores, config)
    for step, score in scores.items():  # a new Saver for each step must read the earlier scores back
        save(reopened, {step: score}, config)
    for folder in (once, reopened):
        assert steps(Workdir(folder).checkpoints) == [6, 5, 4, 2]
        assert (best(folder, config).step, latest(folder, config).step) == (2, 6)
        assert best(folder, tiny.with_training(config, keep_best=0, keep=5)) is not None
    emptied("state")(Workdir(once).checkpoints / "2")
    assert best(once, config).step == 4


def test_a_checkpoint_of_another_config_is_refused_by_key_and_stays(copy):
    before = files(copy)
    other = tiny.with_training(CONFIG, learning_rate=2e-2)
    for read in (latest, best):
        with pytest.raises(
            ConfigError,
            match=r"/checkpoints/6/config: config\.training\.learning_rate: found 0\.01, expected 0\.02; the folder",
        ):
            read(copy, other)
    assert files(copy) == before
    elsewhere = dataclasses.replace(tiny.with_training(CONFIG, keep=1), mesh=MeshConfig(data=2, fsdp=2, tensor=2))
    assert latest(copy, elsewhere).step == 6


def test_reading_makes_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"/checkpoints: found no checkpoint, expected a run that trained$"):
        best(tmp_path)
    assert latest(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("use", [lambda folder: Saver(Workdir(folder).checkpoints, CONFIG), latest, best])
def test_a_file_in_the_place_of_the_folder_is_named(tmp_path, use):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(NotADirectoryError, match=r"/checkpoints: found a file, expected a folder of checkpoints"):
        use(tmp_path)


@pytest.fixture
def full_disk(monkeypatch):
    async def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ocp.JsonCheckpointHandler, "_save_fn", full)


@pytest.mark.parametrize("saved", [(8,), (8, 10)])
def test_a_save_that_fails_in_the_background_raises_at_the_end_at_the_latest(copy, full_disk, saved):
    message = (
        f"{copy}/checkpoints/8: failed to write this checkpoint (OSError: [Errno 28] No space left on device), expected"
        " free space and permission; step 6 is the newest complete one, and the same command resumes from there once "
    )
    with pytest.raises(CheckpointError, match=f"^{re.escape(message)}"):
        save(copy, dict.fromkeys(saved))
    assert steps(copy / "checkpoints") == [6, 4, 2]
    assert best(copy).step == 6


def test_a_failed_save_does_not_hide_the_error_that_ended_training(copy, full_disk, warnings):
    with pytest.raises(KeyError, match="first"), Saver(Workdir(copy).checkpoints, CONFIG) as saver:
        saver.save(8, state_of(8), {}, {})
        raise KeyError("first")
    assert any("checkpoints/8: failed to write this checkpoint" in message for message in warnings())
