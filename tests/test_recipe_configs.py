"""The configs of Qwen3 are the paper's recipe, and a small twin of each takes one step on teacher-labelled streams."""

import ast
import dataclasses
import functools
import json
import re
import runpy

import pytest
import tiny

from prism_jax.runs.pipeline import train_run
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import simulate
from prism_jax.student.lora import LoraConfig
from prism_jax.training import paper
from prism_jax.training.job import describe, plan
from prism_jax.training.run import resolve
from prism_jax.training.run_config import MeshConfig, RunConfig
from prism_jax.training.workdir import Workdir

PAPER = {
    "training.learning_rate": 1e-5,
    "training.warmup": 0.1,
    "training.final_rate": 0.0,
    "training.epochs": 3.0,
    "training.batch": 4,
    "training.accumulation": 4,
    "training.master": "none",
    "training.first_moment": "bfloat16",
    "training.second_moment": "bfloat16",
    "student.dtype": "bfloat16",
    "student.param_dtype": "bfloat16",
    "lora.rank": 0,
    "packing.context": 4096,
    "packing.max_decisions": 1,
    "pathway.name": "rdc_sft",
    "pathway.count": 1800,
    "pathway.stratify": False,
    "pathway.score": "paper",
    "pathway.alpha": 0.0,
    "decision.margin": 0.1,
    "decision.trigger": "margin",
    "loss.estimator": "ips",
}
"""What the paper states (§4.1, Eq. 2, and the appendix "Training configuration"), by the name of the setting."""
UNSTATED = {"pathway.slow", "training.weight_decay", "training.b2", "training.clip", "loss.burden", "decision.c_fn"}
"""Settings of which the paper says nothing, or that it sweeps."""
UPDATES = {"qwen3_8b_a100": 1350, "qwen3_0_6b": 1350, "qwen3_8b_a100x8": 675, "qwen3_lora": 1350}
COUNT = 24


@pytest.fixture(params=UPDATES)
def recipe(request, root):
    """The name and the config of each file."""
    names = runpy.run_path(str(root / "configs" / f"{request.param}.py"))
    return request.param, from_config_dict(RunConfig, names["get_config"]())


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file of simulated streams with a teacher's probabilities and a response at each gold step."""
    settings = dataclasses.replace(tiny.CONFIG.simulator, teacher=True, responses=10)
    path = tmp_path_factory.mktemp("data") / "labelled.jsonl"
    write_streams(path, (simulate(settings, index) for index in range(40)))
    return str(path)


def twin(config, source, **training):
    """The config with a tiny student, few streams, one device and no weights to start from, so without adapters."""
    own = config.student
    student = dataclasses.replace(
        tiny.CONFIG.student, dtype=own.dtype, param_dtype=own.param_dtype, remat=own.remat, num_layers=1
    )
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, source=source),
        prompt=tiny.CONFIG.prompt,
        student=student,
        mesh=MeshConfig(),
        pathway=dataclasses.replace(config.pathway, count=COUNT),
        training=dataclasses.replace(config.training, start="", **training),
        lora=LoraConfig(),
    )


def test_every_departure_from_the_paper_is_listed_and_nothing_else(recipe, root):
    """In the config's docstring, or for all configs in that of the recipe, by the setting's name in backticks."""
    name, config = recipe

    def departures(text):
        return {key for line in text.split("\n- ")[1:] for key in re.findall(r"`([a-z]+\.\w+)`", line)}

    own = departures(ast.get_docstring(ast.parse((root / "configs" / f"{name}.py").read_text())))
    values = {key: functools.reduce(getattr, key.split("."), config) for key in PAPER}
    differ = {key for key, value in values.items() if value != PAPER[key]} | UNSTATED
    listed = own | departures(paper.__doc__)
    assert differ <= listed
    assert own <= differ | {"training.accumulation", "training.batch", "training.first_moment"}


def test_it_trains_the_slow_pass_that_it_deploys(recipe):
    _, config = recipe
    assert config.pathway.slow == 0.3 and config.decision.trigger == "margin" and config.loss.slow > 0


def test_it_curates_1800_decisions_and_makes_the_papers_updates(recipe):
    name, config = recipe
    assert (config.pathway.name, config.pathway.count, config.data.name) == ("rdc_sft", 1800, "jsonl")
    rows = config.pathway.count / config.packing.max_decisions
    assert config.training.over(rows / config.training.batch).steps == UPDATES[name]


@pytest.mark.slow
def test_a_small_twin_takes_one_step(recipe, source, tmp_path):
    _, config = recipe
    job = plan(resolve(twin(config, source)))
    batch = config.training.batch
    assert len(job.split.rows) == COUNT
    assert job.shape.training.steps == 3 * COUNT // batch
    assert f"epochs of {COUNT / batch:,.1f} updates" in describe(job)["steps"]
    assert describe(job)["kept"].startswith(f"{COUNT} of ")
    labels = job.split.need + job.split.accept
    assert job.split.supervised > labels > 0  # there are response tokens to train on
    train_run(twin(config, source, steps=1, epochs=0.0, checkpoint_every=1), Workdir(tmp_path / "run"), report=False)
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["response"] > 0


def test_without_streams_the_error_says_what_is_expected(recipe):
    _, config = recipe
    bare = dataclasses.replace(config, training=dataclasses.replace(config.training, start=""), lora=LoraConfig())
    with pytest.raises(FileNotFoundError) as error:
        resolve(bare)
    assert str(error.value) == (
        "data/teacher_labelled.jsonl: found no such file, expected in --config.data.source a JSONL file of streams, "
        'labelled by a teacher where the pathway curates ("Your own streams" in docs/training.md says how to make one)'
    )


def test_more_decisions_than_there_are_is_an_error(recipe, source):
    _, config = recipe
    small = twin(config, source)
    more = dataclasses.replace(small, pathway=dataclasses.replace(small.pathway, count=1800))
    with pytest.raises(ValueError, match=r"^pathway\.count: found 1800, expected at most the \d+ rows that have a"):
        plan(resolve(more))
