"""The second stage on the student's own fields: what a slow branch reads, what it trains, and where it comes from."""

import dataclasses

import numpy as np
import pytest
import tiny
from tiny_step import RUN, saved_start

from prism_jax.runs.pipeline import with_own_fields
from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.streams.edit import map_steps
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.prompting.packing import pack
from prism_jax.student.prompting.supervised import supervised_step
from prism_jax.student.prompting.template import WritingConfig
from prism_jax.training.job import plan
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.pathways.supervision import is_slow, reads_own_fields
from prism_jax.training.run import resolve

OWN = {name: f"own {number}" for number, name in enumerate(SLOW_FIELDS)}


def folder_of(path, **pathway):
    """The workdir of a run whose student writes texts that differ by step."""
    config = dataclasses.replace(RUN.config, pathway=PathwayConfig(**pathway))
    return saved_start(path, config, scale=15)[0]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("first") / "run", slow=0.5)


def second(start, **pathway):
    config = tiny.with_training(start=str(start))
    writing = WritingConfig(field_tokens=3)
    return dataclasses.replace(
        config, pathway=PathwayConfig(**{"slow": 0.6, "own_fields": 0.5} | pathway), writing=writing
    )


def test_own_fields_are_read_and_not_trained_on():
    stream, template = RUN.splits.train[0], RUN.template
    slow = map_steps(stream, lambda step: dataclasses.replace(supervised_step(step), slow=True))
    own = map_steps(slow, lambda step: dataclasses.replace(step, own_fields=OWN))
    theirs, ours = pack(slow, template, 4096), pack(own, template, 4096)
    head = [token for field in template.slow(OWN) for token in (*field.name, *field.text)]
    opening = len(template.opening())
    assert ours.tokens[opening : opening + len(head)].tolist() == head
    responses = pack(map_steps(stream, lambda step: step), template, 4096).response_target
    assert len(theirs.response_target) > len(ours.response_target) == len(responses)
    np.testing.assert_array_equal(ours.y_need, theirs.y_need)


@pytest.mark.slow
def test_the_chosen_steps_read_what_the_student_of_the_start_writes(start):
    run = resolve(second(start))
    pathway, seed = run.config.pathway, run.config.training.seed
    streams, chosen, slow = with_own_fields(run), 0, 0
    for before, after in zip(run.splits.train, streams, strict=True):
        for step, other in zip(before.steps, after.steps, strict=True):
            reads = reads_own_fields(before, step, pathway, seed)
            chosen, slow = chosen + reads, slow + is_slow(before, step, pathway, seed)
            assert (getattr(other, "own_fields", None) is not None) == reads
            assert other.rationale == step.rationale, "the rationale is kept beside the own fields"
    assert 0.3 < chosen / slow < 0.7
    texts = {
        text for stream in streams for step in stream.steps for text in (getattr(step, "own_fields", 0) or {}).values()
    }
    assert len(texts) > 3
    assert plan(run, streams).split.supervised < plan(run).split.supervised


def test_without_own_fields_the_streams_are_the_runs(start):
    run = resolve(second(start, own_fields=0.0))
    assert with_own_fields(run) is run.splits.train


def test_errors_say_what_is_missing(start, tmp_path):
    fast = folder_of(tmp_path / "fast")
    with pytest.raises(ConfigError, match=r"a run with pathway\.slow = 0, expected one with slow branches"):
        with_own_fields(resolve(second(fast)))
