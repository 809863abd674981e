"""The pathways experiment: its tables hold every pathway and corner, and each second stage starts from a first one."""

import dataclasses

import numpy as np
import pytest

from prism_jax.experiments.training_pathways import (
    COLUMNS,
    CONFIG,
    ERRORS,
    PATHWAYS,
    SQUARE,
    StudentResult,
    measure,
    scores_of,
    tables,
)
from prism_jax.runs.store import Store
from prism_jax.training.pathways.table import SECOND_STAGES
from prism_jax.training.workdir import Workdir

pytestmark = pytest.mark.usefixtures("compile_quickly")


def test_the_tables_average_over_seeds_and_pair_by_seed():
    rng = np.random.default_rng(0)
    pathways = {*PATHWAYS.values(), *SQUARE.values()}
    found = {pathway: rng.normal(size=(3, len(StudentResult._fields))) for pathway in pathways}
    shift = found[SQUARE["all data", "plain"]].copy()
    shift[:, 0] -= [0.24, 0.25, 0.26]  # nearly equal for all seeds: the spread of the outcomes must cancel
    found[SQUARE["filtered", "plain"]] = shift
    outcomes, errors, changes = tables(found)
    assert len(COLUMNS) + len(ERRORS) == len(StudentResult._fields)
    assert [len(row.cells) for row in errors.sections[0].rows] == [len(ERRORS)] * len(PATHWAYS)
    rows = [row for section in outcomes.sections for row in section.rows]
    assert [row.name for row in rows] == [*PATHWAYS, *map(", ".join, SQUARE)]
    means = [float(row.cells[0].split()[0]) for row in rows[:5]]
    assert means == pytest.approx([found[pathway][:, 0].mean() for pathway in PATHWAYS.values()], abs=6e-4)
    effect = next(row for row in changes.sections[0].rows if row.name == "filter, plain losses")
    assert effect.cells == ("-0.250 [-0.275, -0.225]",)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PATHWAYS))
def test_every_pathway_trains_on_the_studys_config(name, tmp_path):
    """With a small part of the budget."""
    second = name in SECOND_STAGES
    small = dataclasses.replace(
        CONFIG,
        data=dataclasses.replace(CONFIG.data, train_streams=64, calibration_streams=20, test_streams=20),
        training=dataclasses.replace(CONFIG.training, steps=4),
    )
    store = Store(tmp_path)
    found = measure(scores_of(small, PATHWAYS[name], store), small)
    assert np.isfinite(found._replace(f1=0.0)).all()
    assert np.isfinite(found.f1) == (found.speak_rate > 0)  # undefined for a gate that never opens
    [folder] = tmp_path.glob(f"pathway-{name}-*")
    start = Workdir(folder).load_config().training.start
    assert bool(start) == second
    if second:
        assert Workdir(start).load_config().pathway.name == "rdc_sft"
