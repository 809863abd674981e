"""Scoring many streams by actors of Ray: the same bytes as in one process; an actor that dies is replaced."""

import functools
import os
import signal

import pytest

pytest.importorskip("ray", reason="actors are of the extra `cluster`")
import ray
import tiny_export
from test_score_command import content, run

from prism_jax.runs.workers import on_ray
from prism_jax.streams.jsonl import write_streams

pytestmark = pytest.mark.study


@pytest.fixture(scope="module", autouse=True)
def cluster(compile_quickly):
    ray.init(address="local", num_cpus=2, include_dashboard=False)
    yield
    ray.shutdown()


def test_actors_write_the_same(tmp_path, template, model, draw_params, with_two_offers):
    exported = tiny_export.export(tmp_path, template, model, draw_params(model))
    write_streams(tmp_path / "streams.jsonl", with_two_offers)
    run(exported, tmp_path / "streams.jsonl", tmp_path / "whole")
    run(exported, tmp_path / "streams.jsonl", tmp_path / "ray", runner="ray", workers=2)
    assert content(tmp_path / "ray") == content(tmp_path / "whole")


def test_the_item_of_an_actor_that_dies_is_taken_again(tmp_path):
    def load(folder):
        def work(item):
            if item == 3 and not (folder / "died").exists():
                (folder / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (folder / str(item)).touch()

        return work

    assert sorted(on_ray(functools.partial(load, tmp_path), range(6), workers=2)) == [*range(6)]
    assert {path.name for path in tmp_path.iterdir()} == {"died", *map(str, range(6))}


def test_an_error_of_the_work_is_raised_as_it_is():
    def load():
        def work(item):
            raise ValueError(f"item {item}: found a fault")

        return work

    with pytest.raises(ValueError, match=r"^item 0: found a fault$"):
        list(on_ray(load, [0], workers=1))


def test_more_actors_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match="--workers: found 3, expected at most 2, one for each CPU of the cluster"):
        list(on_ray(list, [0], workers=3))
