"""The nested study of a student: nothing that is chosen or fitted depends on the labels of the tested streams."""

import dataclasses

import numpy as np
import pytest
import tiny_study
from etils import epath
from scipy import special

from prism_jax.experiments import nested_student as module
from prism_jax.experiments.nested_student import Stack, best_block, stack, states_after, worth_of_blocks
from prism_jax.probe.probe_config import StatesConfig
from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.sources import load_splits
from prism_jax.streams.splits import Splits

READING = StatesConfig(blocks=(1, 2, 3), components=4)


def states_of(streams, *_):
    """Numbers that depend on an offer's text, as states: after each of three blocks, a mean and a slot of two each."""
    return [np.array([_state(offer.text) for step in one.steps for offer in step.candidates]) for one in streams]


def _state(text):
    return np.random.default_rng(int(text.split()[-1])).normal(size=12)


def started(folder):
    """The config of a small student that starts from weights, which these tests never read."""
    config, _ = tiny_study.configs(folder)
    return dataclasses.replace(config, training=dataclasses.replace(config.training, start="weights"))


def turned(stream):
    """The stream with every label turned around."""

    def offer(one):
        return dataclasses.replace(one, y_accept=1 - one.y_accept, votes=tuple(not vote for vote in one.votes))

    return map_steps(map_candidates(stream, offer), lambda step: dataclasses.replace(step, y_need=1 - step.y_need))


@pytest.fixture
def trained(monkeypatch):
    """The configs of all trainings; a training is replaced by random scores, and states by random numbers."""
    configs = []

    def words(others, test, fold):
        splits = Splits((), tuple(others), tuple(test))
        return tiny_study.random_scores(splits, fold), {}

    def train(config, folder):
        configs.append(config)
        return tiny_study.random_scores(load_splits(config.data, config.simulator), config.data.fold)

    monkeypatch.setattr(module, "train_student", train)
    monkeypatch.setattr(module, "states_of", states_of)
    monkeypatch.setattr(module, "epoch_seconds", lambda *_: ())
    monkeypatch.setattr(module, "score_words_nested", words)
    return configs


def run_first_fold(config, folder):
    states = module.read_all(config, READING, folder)
    return module.run_fold(config, states, READING, 1, folder)


def test_labels_of_tested_streams_change_neither_block_nor_weights_nor_stack(tmp_path, trained):
    config = started(tmp_path)
    first = run_first_fold(config, epath.Path(tmp_path))
    tested = set(first.about["test"])
    streams = list(read_streams(config.data.source))
    others = sorted({one.id for one in streams} - tested)
    for which, equal in ((tested, True), (set(others[::2]), False)):
        path = tmp_path / f"{equal}.jsonl"
        write_streams(path, [turned(one) if one.id in which else one for one in streams])
        other = dataclasses.replace(config, data=dataclasses.replace(config.data, source=str(path)))
        second = run_first_fold(other, epath.Path(tmp_path))
        assert (second.about["worth"] == first.about["worth"]) == equal
        assert (second.about["stacks"] == first.about["stacks"]) == equal
        assert trained[-1].training == trained[0].training or not equal
        for name in module.FILES.keys() - {module.TUNED}:
            for signal in ("p_accept_fast", "p_need_fast"):
                before, after = (getattr(one.scores[name], signal) for one in (first, second))
                assert np.array_equal(before, after) == equal, (name, signal)
        for method in first.ranked:  # the measures do see the other labels
            before, after = (one.ranked[method]["accept"].y for one in (first, second))
            assert np.array_equal(before, after) != equal


def test_the_student_ends_after_the_block_at_which_the_slot_tells_acceptance(tmp_path, trained):
    streams = [tiny_study.stream(number) for number in range(8)]
    states = dict(zip((one.id for one in streams), states_of(streams), strict=True))
    for one in streams:  # the slot after the second block
        states[one.id][:, 6] += [3 * offer.y_accept for step in one.steps for offer in step.candidates]
    worth = worth_of_blocks(streams, states, READING)
    assert list(worth) == [1, 2, 3] and worth[2] > 0.9 > max(worth[1], worth[3])
    assert best_block(worth) == 2 and best_block({1: 0.5, 2: 0.5}) == 1
    np.testing.assert_array_equal(states_after(states, READING, 2)["s0"], states["s0"][:, 4:8])
    config = started(tmp_path)
    training = module.up_to(config, 6, 4).training
    assert (training.start_blocks, training.frozen) == (6, ("embedding", "layers/(0|1)/.*"))
    assert module.up_to(config, 4, 4).training.frozen == ("embedding",)


def test_a_stack_uses_calibration_rows_alone_and_drops_a_student_that_knows_nothing(tmp_path):
    config, _ = tiny_study.configs(tmp_path)
    splits = load_splits(config.data, config.simulator)
    floor, student = (tiny_study.random_scores(splits, seed) for seed in (1, 2))
    mixed = student.take(np.random.default_rng(0).permutation(len(student)))
    found, stacks = stack(floor, mixed)
    again, _ = stack(floor, student)
    np.testing.assert_array_equal(found.p_accept_fast, again.p_accept_fast)  # rows are matched by their keys
    rows = floor.split == "test"
    z = special.logit(floor.p_accept_fast[rows]), special.logit(student.p_accept_fast[rows])
    np.testing.assert_allclose(found.p_accept_fast[rows], stacks["accept"](*z), rtol=1e-9)
    with pytest.raises(ValueError, match=r"^scores: found 1 rows in only one of two tables, expected the same"):
        stack(floor, student.take(np.arange(len(student) - 1)))
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.4).astype(float)
    good, noise = np.where(y == 1, 1.0, -1.0) + rng.normal(size=4000), rng.normal(size=4000)
    assert np.corrcoef(Stack.fit(good, noise, y)(good, noise), special.expit(2 * good))[0, 1] > 0.99
    both = Stack.fit(good, noise, y)(good, noise)
    assert abs(both.mean() - y.mean()) < 0.01


def test_a_study_without_weights_or_with_blocks_below_the_trained_ones_is_refused(tmp_path):
    config, _ = tiny_study.configs(tmp_path)
    with pytest.raises(ConfigError, match=r"^training\.start: found none, expected the weights"):
        module.study(config, epath.Path(tmp_path))
    with pytest.raises(ValueError, match=r"^blocks: found 2, expected at least 4"):
        module.study(started(tmp_path), epath.Path(tmp_path), blocks=(2, 6))
