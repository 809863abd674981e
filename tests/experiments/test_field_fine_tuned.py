"""The fine-tuned baseline of the field's table, with a tiny student: which streams train it, and what it gives."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from etils import epath
from offers import make_stream

from prism_jax.experiments.field import fine_tuned
from prism_jax.experiments.field.interface import Fold, Run
from prism_jax.experiments.field.material import Material
from prism_jax.experiments.field.registry import BASELINES
from prism_jax.experiments.field.running import misfit
from prism_jax.runs import store
from prism_jax.runs.export import write_tokenizer
from prism_jax.streams.edit import map_candidates, map_steps, without_answers
from prism_jax.streams.sources import load_splits
from prism_jax.streams.splits import folds
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import save_hf
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.start import with_start

pytestmark = pytest.mark.usefixtures("compile_quickly")

STREAMS = tuple(make_stream(number) for number in range(9))
BLOCK = fine_tuned.TRAINED + 1


@pytest.fixture(scope="module")
def weights(tmp_path_factory, template):
    """Random weights of more blocks than the student keeps."""
    folder = epath.Path(tmp_path_factory.mktemp("pretrained"))
    sizes = dict(hidden_dim=16, num_layers=BLOCK + 1, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)
    model = Qwen3(StudentConfig(vocab_size=template.tokenizer.size, **sizes))
    save_hf(folder, model, model.init(jax.random.key(0)))
    write_tokenizer(folder, template.tokenizer, 2048)
    return str(folder)


def test_a_student_trains_on_three_quarters_of_the_untested_streams_and_only_its_upper_blocks(weights, tmp_path):
    source, run = Material("shop", STREAMS), Run(epath.Path(tmp_path), weights=weights)
    for fold in source.folds(4):
        config = fine_tuned.training_on(fold, run, BLOCK)
        splits, wanted = load_splits(config.data, config.simulator), folds(STREAMS, 4, fold.number)
        assert (splits.train, splits.calibration) == (wanted.train, wanted.calibration)
        assert splits.test == tuple(map(without_answers, wanted.test))
    student = with_start(config).student
    assert student.num_layers == BLOCK
    assert Partition.of(Qwen3(student), config.training.frozen).depth == BLOCK - fine_tuned.TRAINED
    silent = [map_steps(stream, lambda step: dataclasses.replace(step, y_need=None)) for stream in STREAMS]
    assert misfit(BASELINES["fine_tuned"], Material("shop", tuple(silent))) == "no need"


@pytest.mark.slow
def test_raw_slots_see_no_label_of_the_streams_that_calibrate_and_are_trained_once(weights, tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuned, "training_on", functools.partial(fine_tuned.training_on, block=BLOCK, steps=2))
    source, run = Material("shop", STREAMS), Run(epath.Path(tmp_path), weights=weights)
    fold = source.folds(4)[1]
    scores = BASELINES["fine_tuned"].score(fold, run)
    assert set(scores.fold.tolist()) == {1}
    assert set(scores.stream[scores.split == "test"].tolist()) == {stream.id for stream in fold.test}
    wanted = folds(STREAMS, 4, 1)
    held = {stream.id for stream in wanted.calibration}
    assert set(scores.stream[scores.split == "calibration"].tolist()) == held
    for others, same in ((held, True), ({stream.id for stream in wanted.train}, False)):
        train = [turned(stream) if stream.id in others else stream for stream in fold.train]
        again = BASELINES["fine_tuned"].score(Fold(1, train, fold.test), run)
        assert np.array_equal(again.p_accept_fast, scores.p_accept_fast) == same
    monkeypatch.setattr(store, "train_run", lambda *args, **settings: pytest.fail("trained a second time"))
    BASELINES["fine_tuned"].score(fold, run)


def turned(stream):
    """The stream with every label turned around."""

    def offer(one):
        return dataclasses.replace(one, y_accept=1 - one.y_accept, votes=tuple(not vote for vote in one.votes))

    return map_steps(map_candidates(stream, offer), lambda step: dataclasses.replace(step, y_need=1 - step.y_need))
