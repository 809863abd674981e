"""The store of trainings: what names a training, and that means over seeds are those of the seeds' numbers."""

import dataclasses
import math

import numpy as np
import pytest
from etils import epath
from tiny_trainings import RECIPES

from prism_jax.experiments.intervals import mean_over_seeds
from prism_jax.experiments.paper.domain_transfer import HELD_OUT, SEEN, with_files
from prism_jax.experiments.paper.runner import merged
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult
from prism_jax.runs.store import Store, kept, of_seed
from prism_jax.streams.jsonl import read_streams
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run_config import MeshConfig


def test_a_training_is_named_by_all_that_changes_its_result(tmp_path):
    store, config = Store(tmp_path), RECIPES.student
    place = store.place("student", config)
    assert place.parent == tmp_path and place.name.startswith("student-")
    assert store.place("student", dataclasses.replace(config, mesh=MeshConfig(data=2))) == place
    assert Store(tmp_path / "moved").place("student", config).name == place.name
    longer = dataclasses.replace(config, training=dataclasses.replace(config.training, steps=5))
    others = [store.place("student", other) for other in (of_seed(config, 1), longer)]
    assert len({place, store.place("other", config), *others}) == 4
    validated = dataclasses.replace(config, data=dataclasses.replace(config.data, validation=0.5))
    best = dataclasses.replace(validated, training=dataclasses.replace(config.training, keep_best=1))
    assert store.place("student", best) != store.place("student", validated)  # another checkpoint is scored


def test_a_second_stage_is_named_by_its_first_stage_and_not_by_where_that_lies():
    def start(folder):
        training = dataclasses.replace(RECIPES.pathways.training, start=folder)
        config = dataclasses.replace(RECIPES.pathways, pathway=PathwayConfig(name="dft"), training=training)
        return Store("x").place("second", config)

    assert start("a/first-1") == start("b/first-1") != start("a/first-2")


def test_files_of_streams_count_by_their_content(tmp_path):
    one, two = (with_files(RECIPES.transfer, epath.Path(tmp_path / name), SEEN) for name in "ab")
    assert one.data.train_source != two.data.train_source
    assert Store("x").place("transfer", one) == Store("x").place("transfer", two)
    domains = [{stream.domain for stream in read_streams(path)} for path in one.data.paths]
    assert domains == [set(SEEN), {*SEEN, HELD_OUT}, {*SEEN, HELD_OUT}]
    assert len(read_streams(one.data.train_source)) == RECIPES.transfer.data.train_streams
    epath.Path(two.data.train_source).write_bytes(epath.Path(one.data.test_source).read_bytes())
    assert Store("x").place("transfer", one) != Store("x").place("transfer", two)


def test_scores_of_a_file_are_not_made_again(tmp_path, random_scores):
    def never():
        raise AssertionError

    path = epath.Path(tmp_path / "new" / "scores.parquet")
    first = kept(path, lambda: random_scores)
    assert len(first) == len(random_scores)
    np.testing.assert_array_equal(first.p_need_fast, kept(path, never).p_need_fast)


@pytest.fixture
def random_scores():
    from synthetic_scores import make_scores

    return make_scores(streams=4)


def test_one_folder_has_one_call_at_a_time(tmp_path):
    found = f"{tmp_path}: found a training of process"
    with Store(tmp_path).claimed(), pytest.raises(RuntimeError, match=found), Store(tmp_path).claimed():
        pass


def outcome(value, text="yes", extra=()):
    measures = {"a": Measure("a", "A."), "p": Measure("p", "A p-value.", averaged=False), "t": Measure("t", "T.")}
    cells = {"a": Number(value, value - 1, value + 1, 7.0), "p": Number(0.5), "t": text}
    return ExperimentResult((Sheet("s", "S", "row", measures, (Line("x", cells), *extra), "Note."),))


def test_several_seeds_show_means_with_intervals_over_seeds():
    values = np.array([1.0, 2.0, 6.0])
    seeds = [outcome(1.0, "y"), outcome(2.0, "y", [Line("only here", {})]), outcome(6.0, "n")]
    found = merged(seeds)
    [sheet] = found.sheets
    [line] = sheet.lines
    expected = mean_over_seeds(values)
    assert line.cells["a"] == Number(expected.value, expected.low, expected.high, 7.0)
    assert line.cells["t"] == "y / n"
    assert list(sheet.measures) == ["a", "t"], "a mean of p-values is no p-value"
    assert "3 seeds" in sheet.note


def test_one_seed_stays_and_what_one_seed_leaves_undefined_is_undefined():
    one = outcome(1.0)
    assert merged([one]) is one
    [line] = merged([one, outcome(math.nan)]).sheets[0].lines
    assert math.isnan(line.cells["a"].value) and line.cells["a"].paper == 7.0
    [line] = merged([one, one]).sheets[0].lines
    assert line.cells["a"].value == 1.0 and math.isnan(line.cells["a"].low) and math.isnan(line.cells["a"].high)


def test_every_pathway_of_the_paper_has_a_row():
    from prism_jax.experiments.paper.pathways import NAMES
    from prism_jax.experiments.paper.references import PATHWAYS as PRINTED

    assert set(NAMES) >= set(PRINTED)
