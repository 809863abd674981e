"""The study of pathways: its tables hold every pathway and corner, and each second stage starts from its first."""

import dataclasses

import numpy as np
import pytest
from etils import epath

from prism_jax.experiments.pathways import CONFIG, PATHWAYS, SQUARE, Outcome, outcome, table
from prism_jax.training.pathways.table import SECOND_STAGES
from prism_jax.training.workdir import Workdir


def test_the_tables_average_over_seeds_and_pair_by_seed():
    rng = np.random.default_rng(0)
    pathways = {*PATHWAYS.values(), *SQUARE.values()}
    found = {pathway: rng.normal(size=(3, len(Outcome._fields))) for pathway in pathways}
    shift = found[SQUARE["all data", "plain"]].copy()
    shift[:, 0] -= [0.24, 0.25, 0.26]  # nearly the same for every seed: the outcomes' own spread must cancel
    found[SQUARE["filtered", "plain"]] = shift
    lines = table(found)
    assert [line.split("  ")[0].strip() for line in lines[1:10]] == [*PATHWAYS, *map(", ".join, SQUARE)]
    means = [float(line[22:].split()[0]) for line in lines[1:6]]
    assert means == pytest.approx([found[pathway][:, 0].mean() for pathway in PATHWAYS.values()], abs=6e-4)
    effect = next(line for line in lines if "filter, plain losses" in line)
    assert "-0.250 [-0.275, -0.225]" in effect


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PATHWAYS))
def test_every_pathway_trains_on_the_studys_config(name, tmp_path):
    """On a small part of the budget."""
    second = name in SECOND_STAGES
    small = dataclasses.replace(
        CONFIG,
        data=dataclasses.replace(CONFIG.data, train_streams=64, calibration_streams=20, test_streams=20),
        pathway=PATHWAYS[name],
        training=dataclasses.replace(CONFIG.training, steps=4, start="a first stage" if second else ""),
    )
    found = outcome(small, epath.Path(tmp_path))
    assert np.isfinite(found._replace(f1=0.0)).all()
    assert np.isfinite(found.f1) == (found.speak_rate > 0)  # undefined for a gate that never opens
    assert (tmp_path / "first").exists() == second
    if second:
        assert Workdir(tmp_path / "first").load_config().pathway.name == "rdc_sft"
        assert Workdir(tmp_path / "run").load_config().training.start == str(tmp_path / "first")
