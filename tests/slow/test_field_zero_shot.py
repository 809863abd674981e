"""The zero-shot baseline of the field's table, on a real pretrained model."""

import numpy as np
import pytest
from etils import epath

from prism_jax.agent.exported import read_exported
from prism_jax.agent.fitted import read_labelled
from prism_jax.agent.loading import load_reader
from prism_jax.experiments.field.interface import Fold, Run
from prism_jax.experiments.field.registry import BASELINES
from prism_jax.runs.export import export_base
from prism_jax.streams import Candidate, Event, Step, Stream

pytestmark = pytest.mark.slow


def test_zero_shot_slots_are_those_of_the_exported_model(smollm2_gguf, tmp_path):
    events = tuple(Event(time=60.0 * at, text=f"The build fails, error {at}.") for at in range(4))
    offers = Candidate(text="Shall I read the log?"), Candidate()
    streams = [Stream(id="a", events=events, steps=(Step(event=1, candidates=offers), Step(event=3)))]
    scores = BASELINES["zero_shot"].score(Fold(0, (), streams), Run(epath.Path(tmp_path), weights=str(smollm2_gguf)))
    folder = epath.Path(tmp_path) / "exported"
    export_base(smollm2_gguf, folder)
    reader = load_reader(folder, read_exported(folder))
    rows = read_labelled(reader, streams).rows
    one = BASELINES["zero_shot"].score(Fold(0, (), streams), Run(epath.Path(tmp_path), str(smollm2_gguf), steps=1))
    [number] = set(one.step.tolist())
    np.testing.assert_allclose(one.p_accept_fast, scores.p_accept_fast[scores.step == number], atol=1e-4)
    for name in ("p_need_fast", "p_accept_fast"):
        np.testing.assert_allclose(getattr(scores, name), [row[name] for row in rows], atol=1e-4)
