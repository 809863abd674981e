"""The study of people finds what a simulated log hides, with times and without them."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from prism_jax.acceptance.columns import parse_columns
from prism_jax.acceptance.prediction import run_people
from prism_jax.experiments.people_demo import COLUMNS, CONTEXT, simulate_log

pytestmark = pytest.mark.slow


def test_many_people_of_twenty_answers(tmp_path):
    """Hundreds of people, other column names, no time but the order of the file, no score."""
    log = simulate_log(people=200, answers=20, seed=1)
    table = log.table.select(["task", "length", "focused", "user", "taken"])
    pa.csv.write_csv(table.rename_columns(["what", "n", "f", "id", "ok"]), tmp_path / "log.csv")
    columns = parse_columns("person=id,accepted=ok")
    found = run_people(str(tmp_path / "log.csv"), columns, ["what", "n", "f"], str(tmp_path / "out"), truth=log.truth)
    brier = {name: row["brier"] for name, row in found["rows"].items()}
    assert brier["truth"] < brier["context+person"] < min(brier["context"], brier["person"]) < brier["constant"]
    auroc = {name: row["auroc"] for name, row in found["rows"].items()}
    assert auroc["context+person"] > max(auroc["context"], auroc["person"])
    first = found["by_answers"][0]
    assert (first["from"], first["to"], first["answers"]) == (0, 0, 200)
    assert first["brier"]["context+person"] < first["brier"]["context"] + 0.005
    spreads = [population["spread"] for population in found["populations"]]
    assert np.mean(spreads) == pytest.approx(0.9, abs=0.2)


def test_a_score_that_is_too_sure_of_itself(tmp_path):
    log = simulate_log(people=40, answers=40)
    (tmp_path / "log.csv").write_bytes(log.to_csv())
    columns = parse_columns(COLUMNS)
    rows = run_people(str(tmp_path / "log.csv"), columns, CONTEXT, str(tmp_path / "out"), truth=log.truth)["rows"]
    assert rows["score, Platt"]["brier"] < rows["score"]["brier"]
    assert rows["score+person"]["brier"] < rows["score, Platt"]["brier"]
    assert rows["context+person"]["brier"] < min(
        rows[name]["brier"] for name in rows if name not in ("truth", "context+person")
    )
