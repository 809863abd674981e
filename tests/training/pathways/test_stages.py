"""Second stages start from a run's checkpoint, and errors explain why one cannot start."""

import dataclasses
import re

import chex
import jax
import pytest
import tiny
from etils import epath
from tiny_step import MESH, RUN, saved_start

from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run import base_params, resolve
from prism_jax.training.start import with_start
from prism_jax.training.workdir import Workdir


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The workdir of a run that has saved its initial state, and the parameters in it."""
    return saved_start(tmp_path_factory.mktemp("first") / "run")


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
    student = dataclasses.replace(tiny.CONFIG.student, param_dtype="bfloat16", unroll=2)
    found = with_start(second(workdir, student=student))
    assert (found.student.param_dtype, found.student.unroll) == ("bfloat16", 2)
    narrow = base_params(found, resolve(found).model, MESH)
    expected = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), params)
    chex.assert_trees_all_equal(*map(jax.device_get, (narrow, expected)))


def test_another_student_and_a_part_of_the_runs_blocks_are_errors_that_name_the_field(first):
    workdir, _ = first
    other = second(workdir, student=dataclasses.replace(tiny.CONFIG.student, num_layers=3))
    with pytest.raises(ConfigError, match=rf"^student\.num_layers: found 3, expected 2 as in {workdir}/config\.json"):
        with_start(other)
    blocks = tiny.with_training(second(workdir), start_blocks=1)
    with pytest.raises(ConfigError, match=r"^training\.start_blocks: found 1 for .*, expected 0 for a run, whose"):
        with_start(blocks)


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
