"""The command on logs of answers: a simulated one whose truth is known, and a shipped product's where it is present."""

import json
import pathlib

import forked
import numpy as np
import pytest

from prism_jax.scores import read_scores

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[2]
REAL = ROOT / ".." / "shared" / "acceptance-logs"


def evaluate(*arguments):
    done = forked.run("prism_jax.evaluate", *arguments, cwd=ROOT, env={"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_log_is_evaluated_and_its_export_too(tmp_path):
    """The score is overconfident by a factor of 3, so that one temperature mends it, and people differ."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(20), 60)
    log_odds = rng.normal(size=len(person))
    p = 1 / (1 + np.exp(-(log_odds + rng.normal(0, 0.8, 20)[person])))
    accepted, score = rng.random(len(person)) < p, 1 / (1 + np.exp(-3 * log_odds))
    rows = (f"u{i},{t},{s:.6f},{int(y)}" for t, (i, s, y) in enumerate(zip(person, score, accepted, strict=True)))
    (tmp_path / "log.csv").write_text("user,when,confidence,taken\n" + "\n".join(rows) + "\n")
    printed = evaluate(
        f"--scores={tmp_path / 'log.csv'}",
        "--columns=person=user,time=when,score=confidence,accepted=taken",
        f"--workdir={tmp_path / 'out'}",
        f"--scores_out={tmp_path / 'scores.parquet'}",
    )
    assert "offer where p_accept ≥ C_FA / (C_FA + C_FN) = 0.3333" in printed
    found = json.loads((tmp_path / "out" / "acceptance_log.json").read_text())
    brier = {name: row["brier"]["value"] for name, row in found["rows"].items()}
    assert brier["score+person"] < brier["score, temperature"] < brier["score"]
    assert found["rows"]["score, temperature"]["ece"]["value"] < 0.5 * found["rows"]["score"]["ece"]["value"]
    assert found["where_scored"]["score"]["value"] == pytest.approx(brier["score"])
    scores = read_scores(tmp_path / "scores.parquet")
    assert found["gate"]["score"]["best"] in ("score, temperature", "score, Platt")  # the score is overconfident
    assert np.mean((scores.p_accept_fast - scores.y_accept) ** 2) == pytest.approx(
        found["gate"]["score"]["brier"][found["gate"]["score"]["best"]]
    )
    printed = evaluate(f"--scores={tmp_path / 'scores.parquet'}", f"--workdir={tmp_path / 'report'}")
    assert "p_accept alone" in printed and "1200 test steps of 20 streams of 20 people" in printed
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.skipif(not REAL.is_dir(), reason="the public log of a shipped product is not here")
def test_a_shipped_products_confidence_looks_worse_than_a_constant_and_15_people_do_not_settle_it(tmp_path):
    columns = "--columns=person=person,time=time,score=confidence,accepted=accepted"
    evaluate(f"--scores={REAL / 'copilot.parquet'}", columns, f"--workdir={tmp_path}")
    found = json.loads((tmp_path / "acceptance_log.json").read_text())
    assert found["where_scored"]["score"]["value"] == pytest.approx(0.282, abs=5e-4)
    difference = found["where_scored"]["difference"]
    assert difference["value"] == pytest.approx(0.045, abs=5e-4)
    assert -0.01 < difference["low"] < 0 < difference["high"]
    assert found["rows"]["score+person"]["brier"]["value"] < found["rows"]["constant"]["brier"]["value"]
