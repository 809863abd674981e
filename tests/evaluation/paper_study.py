"""A small study of simulated scores, for the tests of the paper's tables."""

import numpy as np
from etils import epath
from synthetic_scores import make_columns

from prism_jax.evaluation import protocol
from prism_jax.experiments.paper import registry, runner
from prism_jax.experiments.paper.runner import Inputs
from prism_jax.experiments.paper.study import PAPER, IntervalSettings, Study
from prism_jax.runs.running import Running
from prism_jax.scores import Scores, write_scores

SETTINGS = IntervalSettings(resamples=20)
ON_SCORES = tuple(
    name for name, experiment in registry.EXPERIMENTS.items() if experiment.of == "scores" and name != "written"
)
"""The tables of scores, but for that of written texts, which most scores know nothing of."""


def columns(**knobs):
    found = make_columns(streams=24, **knobs)
    n = len(found["stream"])
    return found | {"tokens_fast": np.full(n, 100), "tokens_slow": 10 + np.arange(n) % 7}


def study_of(values, **knobs):
    scores = Scores.from_columns(values)
    return Study(scores, protocol.calibrate(scores), "simulated steps", settings=SETTINGS, **knobs)


def cells(sheet, name, section=None):
    (line,) = [line for line in sheet.lines if line.name == name and section in (None, line.section)]
    return line.cells


def given_of(values, folder):
    """What a call with these scores in a file gives to its experiments."""
    path = folder.parent / f"{folder.name}.parquet"  # beside the folder of the tables
    write_scores(path, Scores.from_columns(values))
    return Inputs(scores=str(path), settings=SETTINGS, paper_numbers=True)


def made(pattern, folder, names=ON_SCORES, **knobs):
    """The CSV files of some tables, by name."""
    given = Inputs(
        scores=str(pattern), point=PAPER, settings=SETTINGS, running=Running(**{"most": 0, "workers": 1} | knobs)
    )
    runner.run_experiments(names, given, epath.Path(folder))
    assert not (folder / ".unfinished").exists()
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".csv", ".md")}
