"""Products with operands in bfloat16 on real weights: SmolLM2's log-odds on ProactiveBench, beside those in float32."""

import dataclasses

import numpy as np
import pytest
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig, load_splits
from prism_jax.student.dispatch import check_compute
from prism_jax.student.prompting.template import PromptConfig, Template
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.fast import score_streams
from prism_jax.student.scoring.student import Student
from prism_jax.student.weights import load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_well")]


@needs_checkout
def test_log_odds_of_a_real_model_move_little(smollm2_gguf, tmp_path, monkeypatch):
    """At most 0.02 on average, over the decisions of two streams."""
    try:
        check_compute("bfloat16")
    except ValueError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    streams = load_splits(DataConfig(name="proactivebench", source=str(CHECKOUT)), SimulatorConfig()).test[:2]
    plain = load(smollm2_gguf, "float32")
    template = Template(Tokenizer.load(smollm2_gguf), PromptConfig())

    def log_odds(compute):
        model = Qwen3(dataclasses.replace(plain.model.config, compute=compute))
        student = Student(model, plain.params, template)
        rows = list(score_streams(student, streams, split="test", fold=0, context=2048, batch=1))
        p = np.array([[row["p_need_fast"], row["p_accept_fast"]] for row in rows])
        return np.log(p) - np.log1p(-p)

    moved = np.abs(log_odds("bfloat16") - log_odds("float32"))
    print(f"{len(moved)} decisions: {moved.mean():.4f} on average, {moved.max():.4f} at most")
    assert len(moved) >= 20 and 0 < moved.mean() <= 0.02 and moved.max() <= 0.1
