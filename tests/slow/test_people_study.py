"""The study of people finds what a simulated log hides, with times and without them."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.experiments.people_demo import COLUMNS, CONTEXT, simulate_log
from prism_jax.runs.answers import evaluate_log

pytestmark = pytest.mark.slow


def evaluated(folder, columns, context, truth):
    """What is written of the log in the folder."""
    question = Question(1.0, 2.0, context)
    return evaluate_log(folder / "log.csv", parse_columns(columns), folder / "out", question, truth=truth)


def test_many_people_of_twenty_answers(tmp_path):
    """Hundreds of people, other column names, no time but the order of the file, no score."""
    log = simulate_log(people=200, answers=20, seed=1)
    table = log.table.select(["task", "length", "focused", "user", "taken"])
    pa.csv.write_csv(table.rename_columns(["what", "n", "f", "id", "ok"]), tmp_path / "log.csv")
    value = evaluated(tmp_path, "person=id,accepted=ok", ["what", "n", "f"], log.truth)
    brier = {name: row["brier"]["value"] for name, row in value["rows"].items()}
    assert brier["truth"] < brier["context+person"] < min(brier["context"], brier["person"]) < brier["constant"]
    auroc = {name: row["auroc"]["value"] for name, row in value["rows"].items()}
    assert auroc["context+person"] > max(auroc["context"], auroc["person"])
    first = value["by_answers"][0]
    assert (first["from"], first["to"], first["answers"]) == (0, 0, 200)
    assert first["brier"]["context+person"] < first["brier"]["context"] + 0.005
    spreads = [population["spread"] for population in value["populations"]]
    assert np.mean(spreads) == pytest.approx(0.9, abs=0.2)


def test_a_score_that_is_too_sure_of_itself(tmp_path):
    log = simulate_log(people=40, answers=40)
    (tmp_path / "log.csv").write_bytes(log.to_csv())
    rows = evaluated(tmp_path, COLUMNS, CONTEXT, log.truth)["rows"]
    brier = {name: row["brier"]["value"] for name, row in rows.items()}
    assert brier["score, Platt"] < brier["score"]
    assert brier["score+person"] < brier["score, Platt"]
    assert brier["context+person"] < min(brier[name] for name in brier if name not in ("truth", "context+person"))
