"""The paper's tables on trainings: killed at random moments, twice, over seeds, and again without training."""

import csv
import pathlib

import numpy as np
import pytest
import trained_tables

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]
KILLS = 5
NAMES = ("main", "thresholds", "domain_transfer", "judge_robustness", "latency")
"""Experiments of every kind; those of three students, one of which reads files of streams."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache):
    """The folder of a call that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    finish(folder, NAMES, cache)
    return folder


def finish(folder, names, cache, seeds=1):
    process = trained_tables.start(folder, names, cache, seeds)
    process.join(500)
    assert process.exitcode == 0


def tables(folder):
    """The bytes of every CSV file without seconds in it."""
    return {path.name: path.read_bytes() for path in folder.glob("*.csv") if not path.name.startswith("latency")}


def kept(folder):
    """What the store holds, with the time at which each file was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("trainings/**/*") if path.is_file()}


def test_every_experiment_makes_its_tables(whole):
    made = {path.stem for path in whole.glob("*.csv")}
    assert made == {*NAMES, "latency_policies"}
    assert not list(pathlib.Path(whole).rglob("*.partial"))


def test_a_second_call_trains_nothing_and_makes_the_same_tables(whole, cache):
    before, store = tables(whole), kept(whole)
    for name in before:
        (whole / name).unlink()
    finish(whole, NAMES, cache)
    assert tables(whole) == before
    assert kept(whole) == store


@pytest.mark.study
def test_kills_at_random_moments_lose_nothing(whole, tmp_path, cache):
    rng, killed = np.random.default_rng(0), 0
    for _ in range(KILLS):
        process = trained_tables.start(tmp_path, NAMES, cache)
        process.join(rng.uniform(2, 9))
        process.kill()
        process.join()
        killed += process.exitcode == -9
    assert killed >= 3, "the work must have been under way"
    finish(tmp_path, NAMES, cache)
    assert tables(tmp_path) == tables(whole)


def test_seeds_share_the_store_and_show_their_mean(whole, cache):
    alone = rows(whole / "thresholds.csv")
    finish(whole, ["thresholds"], cache, seeds=2)
    both = rows(whole / "thresholds.csv")
    assert len(list(whole.glob("trainings/student-*"))) == 2
    for one, two in zip(alone, both, strict=True):
        assert float(two["cost_low"]) <= float(two["cost"]) <= float(two["cost_high"])
        assert (one["section"], one["threshold"]) == (two["section"], two["threshold"])


def rows(path):
    return list(csv.DictReader(path.open(encoding="utf-8")))
