"""Second stages start from a run's checkpoint, and errors explain why one cannot start."""

import dataclasses
import re

import chex
import jax
import pytest
import tiny
from etils import epath
from tiny_step import MESH, RUN

from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.training.checkpoints.saver import Saver
from prism_jax.training.optimization.step import init_state
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run import base_params, resolve
from prism_jax.training.start import with_start
from prism_jax.training.workdir import Workdir


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The workdir of a run that has saved its initial state, and the parameters in it."""
    workdir = epath.Path(tmp_path_factory.mktemp("first") / "run")
    Workdir(workdir).claim(RUN.config)
    RUN.template.tokenizer.save(workdir / "tokenizer.json")
    state = init_state(RUN.model, RUN.config.training, MESH, jax.random.key(5))
    with Saver(Workdir(workdir).checkpoints, RUN.config) as saver:
        saver.save(1, state, {}, {})
    return workdir, jax.device_get(state.params)


def second(workdir, **changes):
    """Returns the config of a second stage of the tiny run, before it is resolved."""
    simulator = dataclasses.replace(tiny.CONFIG.simulator, teacher=True)
    config = tiny.with_training(start=str(workdir))
    return dataclasses.replace(config, simulator=simulator, pathway=PathwayConfig(name="dft"), **changes)


def test_a_second_stage_takes_over_the_runs_student_tokenizer_and_parameters(first):
    workdir, params = first
    for config in (second(workdir), second(workdir, student=type(RUN.config.student)())):
        found = with_start(config)
        assert found.student == RUN.config.student
        run = resolve(found)
        assert run.template.tokenizer.definition == RUN.template.tokenizer.definition
        assert run.model == RUN.model
    chex.assert_trees_all_equal(jax.device_get(base_params(found, run.model, MESH)), params)


def test_a_second_stage_sets_its_own_dtypes_and_unrolling(first):
    workdir, params = first
    found = with_start(
        second(workdir, student=dataclasses.replace(tiny.CONFIG.student, param_dtype="bfloat16", unroll=2))
    )
    assert (found.student.param_dtype, found.student.unroll) == ("bfloat16", 2)
    narrow = base_params(found, resolve(found).model, MESH)
    chex.assert_trees_all_equal(
        jax.device_get(narrow), jax.device_get(jax.tree.map(lambda leaf: leaf.astype("bfloat16"), params))
    )


def test_the_error_for_another_student_names_the_field(first):
    workdir, _ = first
    other = dataclasses.replace(tiny.CONFIG.student, num_layers=3)
    message = (
        f"student.num_layers: found 3, expected 2 as in {workdir / 'config.json'}, the run that training.start names"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        with_start(second(workdir, student=other))


def test_blocks_of_a_run_cannot_be_left_out(first):
    config = second(first[0])
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, start_blocks=1))
    with pytest.raises(ConfigError, match=r"^training\.start_blocks: found 1 for .*, expected 0 for a run, whose"):
        with_start(config)


def test_another_tokenizer_is_an_error(first, template, tmp_path):
    workdir, _ = first
    template.tokenizer.save(tmp_path / "tokenizer.json")
    prompt = dataclasses.replace(tiny.CONFIG.prompt, tokenizer=str(tmp_path))
    with pytest.raises(ConfigError, match=r"^prompt\.tokenizer: found .*, another tokenizer than .*tokenizer\.json"):
        with_start(second(workdir, prompt=prompt))


def test_starting_from_a_run_without_checkpoints_is_an_error(first, tmp_path):
    workdir = epath.Path(tmp_path / "empty")
    Workdir(workdir).claim(RUN.config)
    message = f"{workdir / 'checkpoints'}: found no checkpoint, expected one in training.start: train that run first"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        with_start(second(workdir))
