"""The nested study end to end, with a tiny student: choosing a block, training up to it, stacking, and the export."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from etils import epath
from offers import make_stream

from prism_jax.experiments import nested_student as module
from prism_jax.runs.export import export_run, write_tokenizer
from prism_jax.scores import read_scores
from prism_jax.streams.edit import map_candidates, map_steps
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.sources import DataConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import read_config, save_hf
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.workdir import Workdir

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]

BLOCKS = (2, 3)
STREAMS = [make_stream(number) for number in range(8)]


def turned(stream):
    """The stream with every label turned around."""

    def offer(one):
        return dataclasses.replace(one, y_accept=1 - one.y_accept, votes=tuple(not vote for vote in one.votes))

    return map_steps(map_candidates(stream, offer), lambda step: dataclasses.replace(step, y_need=1 - step.y_need))


@pytest.fixture(scope="module")
def config(tmp_path_factory, template):
    """Two folds of eight streams, and random weights of three blocks to start from."""
    folder = epath.Path(tmp_path_factory.mktemp("pretrained"))
    write_streams(folder / "streams.jsonl", STREAMS)
    sizes = dict(hidden_dim=16, num_layers=3, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)
    model = Qwen3(StudentConfig(vocab_size=template.tokenizer.size, **sizes))
    save_hf(folder / "weights", model, model.init(jax.random.key(0)))
    write_tokenizer(folder / "weights", template.tokenizer, 2048)
    training = TrainingConfig(steps=4, batch=1, learning_rate=1e-2, checkpoint_every=4, reuse_frozen=True)
    return RunConfig(
        data=DataConfig(name="jsonl", source=str(folder / "streams.jsonl"), folds=2, calibration=0.5),
        loss=LossConfig(response=0.0),
        training=dataclasses.replace(training, start=str(folder / "weights"), soft_labels=True),
    )


def study(config, workdir):
    return module.study(config, workdir, blocks=BLOCKS, trained=1, resamples=100)


def test_it_ends_after_the_chosen_block_and_no_test_label_matters(config, tmp_path, monkeypatch):
    first = epath.Path(tmp_path / "first")
    tables = study(config, first)
    names = [module.TFIDF, *module.FILES, *(f"{after} minus {before}" for before, after in module.PAIRS)]
    assert [row.name for row in tables[0].sections[0].rows] == names
    folds = json.loads((first / "choices.json").read_text())["folds"]
    assert sorted(name for fold in folds for name in fold["test"]) == [one.id for one in STREAMS]
    run = Workdir(first / "fold0")
    assert run.load_config().student.num_layers == folds[0]["block"]
    export_run(run, epath.Path(tmp_path / "exported"))
    assert read_config(tmp_path / "exported", "float32").num_layers == folds[0]["block"]

    source = tmp_path / "turned.jsonl"
    write_streams(source, [turned(one) if one.id in folds[0]["test"] else one for one in STREAMS])
    other = dataclasses.replace(config, data=dataclasses.replace(config.data, source=str(source)))
    reading = module.reading_of(other, BLOCKS)
    states = module.read_all(other, reading, first / "states")
    again = module.run_fold(other, states, reading, 1, epath.Path(tmp_path / "again"))
    for chosen in ("block", "worth", "stacks"):
        assert json.loads(json.dumps(again.about[chosen])) == folds[0][chosen]
    for name, file in module.FILES.items():
        whole, after = read_scores(first / file), again.scores[name]
        before = whole.take(whole.fold == 0)
        for signal in ("p_accept_fast", "p_need_fast"):
            np.testing.assert_array_equal(getattr(before, signal), getattr(after, signal))
        assert (before.y_accept == 1 - after.y_accept).all()

    def train(*_):
        raise AssertionError("trained a second time")

    monkeypatch.setattr("prism_jax.runs.pipeline.train_and_evaluate", train)
    assert study(config, first) == tables
