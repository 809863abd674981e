"""Runs that train adapters: checkpoints hold them alone and name their base; all else is as with a full run."""

import dataclasses
import json
import shutil

import chex
import jax
import numpy as np
import pytest
import tiny
from etils import epath
from flax import traverse_util

from prism_jax.agent.agent import Agent
from prism_jax.runs.export import export_run, write_tokenizer
from prism_jax.runs.pipeline import evaluate_workdir, train_run
from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.runtime.digests import weights_sha256
from prism_jax.scores import read_scores
from prism_jax.streams import Event
from prism_jax.student.lora import LoraConfig, joined
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import load, save_hf
from prism_jax.training.job import plan
from prism_jax.training.loop import train
from prism_jax.training.run import resolve, restore_trained, trained_params, untrained_params
from prism_jax.training.start import with_start
from prism_jax.training.workdir import Workdir

LORA = LoraConfig(rank=2, alpha=8.0, dropout=0.1, head="slots")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with random weights and a tokenizer, as Hugging Face names them."""
    folder = epath.Path(tmp_path_factory.mktemp("base"))
    run = resolve(tiny.CONFIG)
    save_hf(folder, run.model, run.model.init(jax.random.key(0)))
    write_tokenizer(folder, run.template.tokenizer, 2048)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The workdir of a run that trained all parameters."""
    folder = epath.Path(tmp_path_factory.mktemp("trained"))
    train_run(tiny.CONFIG, Workdir(folder), report=False)
    return folder


def config_on(start, lora=LORA, **training):
    settings = {"start": str(start), "learning_rate": 3e-2} | training
    config = dataclasses.replace(tiny.with_training(**settings), lora=lora)
    return dataclasses.replace(config, student=dataclasses.replace(config.student, vocab_size=0))


@pytest.fixture(scope="module")
def adapted(base, tmp_path_factory):
    """The workdir of a run of adapters on the base, and its merged parameters at the end."""
    folder = epath.Path(tmp_path_factory.mktemp("adapted"))
    _, params = train_run(config_on(base), Workdir(folder), report=False)
    return folder, jax.device_get(params)


@pytest.fixture(scope="module")
def evaluated(adapted):
    """The same workdir after its evaluation."""
    evaluate_workdir(adapted[0], texts=False)
    return adapted


def flat(tree):
    return traverse_util.flatten_dict(tree, sep="/")


@pytest.mark.slow
def test_checkpoints_hold_the_adapters_alone_and_name_their_base(base, adapted):
    folder, params = adapted
    config = Workdir(folder).load_config()
    assert config.training.start_sha256 == weights_sha256(base)
    saved = json.loads((folder / "checkpoints" / "8" / "config" / "metadata").read_text())
    assert saved["training"]["start_sha256"] == config.training.start_sha256
    alone = restore_trained(config, Workdir(folder), merge=False).params
    assert {name.rpartition("/lora/")[1] or name for name in flat(alone)} == {"/lora/", "head_rows"}
    assert sum(leaf.size for leaf in jax.tree.leaves(alone)) < 0.5 * sum(leaf.size for leaf in jax.tree.leaves(params))
    assert all(np.any(leaf) for leaf in flat(alone).values())
    model = Qwen3(config.student, config.lora)
    chex.assert_trees_all_equal(jax.device_get(model.plain(joined(load(base, "float32").params, alone))), params)


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_bit_identical(base, adapted, tmp_path):
    run = resolve(config_on(base), Workdir(tmp_path))
    with pytest.raises(tiny.StoppedError):
        train(plan(run), progress=False, after_step=tiny.stop_after(4))
    chex.assert_trees_all_equal(jax.device_get(run.with_adapters.plain(train(plan(run), progress=False))), adapted[1])
    assert (tmp_path / "metrics.jsonl").read_bytes() == (adapted[0] / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_evaluation_export_and_agent_read_the_merged_student(evaluated, tmp_path):
    folder, params = evaluated
    run = resolve(Workdir(folder).load_config(), Workdir(folder))
    _, merged = trained_params(run.config, Workdir(folder))
    chex.assert_trees_all_equal(jax.device_get(merged), params)
    export_run(folder, epath.Path(tmp_path / "merged"))
    exported = load(tmp_path / "merged", "float32")
    assert dataclasses.replace(exported.model.config, remat=run.model.config.remat) == run.model.config
    chex.assert_trees_all_equal(jax.device_get(exported.params), jax.device_get(merged))
    export_run(folder, epath.Path(tmp_path / "adapter"), adapter=True)
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert "adapter_model.safetensors" in names and not any(name.startswith("model") for name in names)
    event = Event(time=0.0, text="The build failed again.")
    decisions = [Agent.load(tmp_path / name).observe("s", event, ["Read the log"]) for name in ("merged", "adapter")]
    signals = [(decision.p_need, decision.p_accept) for decision in decisions]
    np.testing.assert_allclose(signals[0], signals[1], atol=1e-6)
    assert read_scores(folder / "scores.parquet").split.size


@pytest.fixture
def changed_base(base):
    """One bit of the base's last value is another while a test runs."""
    path = base / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    yield
    path.write_bytes(whole)


@pytest.mark.slow
def test_another_base_is_refused(base, evaluated, changed_base, tmp_path):
    adapted = evaluated
    other = r"^training\.start_sha256: found .* for .*base.*, expected .*: these are other weights$"
    with pytest.raises(ConfigError, match=other):
        evaluate_workdir(adapted[0], texts=False)
    with pytest.raises(ConfigError, match=other):
        export_run(adapted[0], epath.Path(tmp_path / "merged"))
    with pytest.raises(ValueError, match=r"training\.start_sha256: found .*, expected .*; the folder holds a run"):
        train_run(config_on(base), Workdir(adapted[0]), report=False)
    assert not (tmp_path / "merged").exists()


@pytest.mark.slow
def test_adapters_on_a_run_and_adapters_on_adapters(trained, adapted, tmp_path):
    """A run is a base too, and so is a run of adapters, merged into its own base."""
    for start, name in ((trained, "first"), (adapted[0], "second")):
        config = with_start(config_on(start, LoraConfig(rank=2, targets=("v_proj",)), steps=2))
        run, params = train_run(config, Workdir(tmp_path / name), report=False)
        expected = trained_params(Workdir(start).load_config(), Workdir(start))[1]
        for path, leaf in flat(jax.device_get(expected)).items():
            assert np.array_equal(flat(params)[path], leaf) != path.endswith("v_proj/kernel"), path
        assert len(run.config.training.start_sha256) == 64


@pytest.mark.slow
def test_a_damaged_base_is_no_base(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    config = with_start(config_on(tmp_path / "run"))
    for file in (tmp_path / "run" / "checkpoints" / "8" / "state").rglob("*"):
        if file.is_file() and file.stat().st_size > 1000:
            file.write_bytes(b"\0" + file.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"/run: found step 8 damaged, expected the base of the adapters as it was"):
        train_run(config, Workdir(tmp_path / "adapted"), report=False)


@pytest.mark.slow
def test_adapters_are_a_start_for_adapters(base, evaluated, tmp_path):
    """They train in microbatches, too, each of which draws its own dropout."""
    adapted = evaluated
    export_run(adapted[0], epath.Path(tmp_path / "adapter"), adapter=True)
    lora = LoraConfig(rank=2, start=str(tmp_path / "adapter"), dropout=0.1)
    config = config_on(base, lora, steps=2, accumulation=2)
    resolved = with_start(config)
    assert (resolved.lora.alpha, resolved.lora.head) == (8.0, "slots")
    run = resolve(resolved)
    before = untrained_params(run)
    chex.assert_trees_all_close(before, trained_params(Workdir(adapted[0]).load_config(), Workdir(adapted[0]))[1])
    train_run(config, Workdir(tmp_path / "run"), report=False)
    part = flat(restore_trained(run.config, Workdir(tmp_path / "run"), merge=False).params)
    for name, leaf in flat(
        restore_trained(Workdir(adapted[0]).load_config(), Workdir(adapted[0]), merge=False).params
    ).items():
        assert 0 < np.abs(part[name] - leaf).max() < 0.1  # one step away


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (config_on("weights", start_blocks=1), "whose base is the lowest 1 blocks of weights, expected"),
        (tiny.CONFIG, r"a run with lora\.rank = 0, expected one that trained"),
        (
            config_on("weights", LoraConfig(rank=2, targets=(), head="slots")),
            r"a run with lora\.targets = \(\), expected",
        ),
    ],
)
def test_adapters_of_the_lowest_blocks_or_of_a_run_without_any_are_not_exported(tmp_path, config, message):
    Workdir(tmp_path).claim(config)
    with pytest.raises(ValueError, match=f"^--adapter: found .*, {message}"):
        export_run(tmp_path, epath.Path(tmp_path / "out"), adapter=True)
    assert not (tmp_path / "out").exists()
