import json

import numpy as np
import pytest
from etils import epath
from synthetic_scores import as_log, make_columns, without

from prism_jax.commands.probing import train_and_evaluate_probe
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.probe.probe_config import ProbeConfig
from prism_jax.runs.scores_files import evaluate_scores
from prism_jax.scores import Scores, ScoresError, write_scores
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.sources import DataConfig


@pytest.fixture
def columns():
    """A log with propensities, of 400 steps."""
    made = make_columns(streams=40, steps=10, slow=False)
    return as_log(made, np.where(made["p_accept_fast"] > 0.5, 0.9, 0.2), np.random.default_rng(0))


@pytest.fixture
def evaluated(tmp_path):
    def run(columns, **how):
        path, out = tmp_path / "scores.parquet", epath.Path(tmp_path / "out")
        write_scores(path, Scores.from_columns(columns))
        evaluate_scores(str(path), out, OperatingPoint(), **how)
        return out

    return run


def test_unshown_offers_without_propensities_are_refused_and_with_them_evaluated(columns, evaluated, tmp_path):
    unshown = (~columns["logged"]).sum()
    found = rf"scores.parquet, row \d+, propensity: found no propensity beside logged = false on {unshown} of 400 rows"
    with pytest.raises(ScoresError, match=found):
        evaluated(without(columns, "propensity"))
    assert not (tmp_path / "out").exists()
    assert (evaluated(columns) / "report.html").exists()


def test_shown_offers_alone_are_evaluated_where_asked_and_every_title_says_so(columns, evaluated, capsys):
    out = evaluated(without(columns, "propensity"), shown_only=True)
    shown = capsys.readouterr().out
    tree = json.loads((out / "evaluation.json").read_text())
    test = np.array(columns["split"]) == "test"
    assert tree["counts"]["rows"] == tree["counts"]["judged"] == (test & columns["logged"]).sum()
    assert tree["population"] == "of shown offers only"
    titles = ("What decisions cost, per step", "How certain the realised costs are", "What decisions got right")
    for title in (*titles, "Across cost ratios", "How well the signals are calibrated"):
        assert f"{title}, of shown offers only" in shown
        assert f"{title}, of shown offers only" in (out / "report.html").read_text()


def test_shown_only_needs_a_log(evaluated):
    with pytest.raises(ScoresError, match="logged: found no such column, expected it with --shown_only"):
        evaluated(make_columns(slow=False), shown_only=True)


def streams_with_unshown_offers():
    """Forty streams of which every fourth step's offer was not made, without propensities."""
    rng = np.random.default_rng(5)
    for number in range(40):
        steps = tuple(
            Step(event=i, candidates=(Candidate(text="Offer help", logged=False),), y_need=0.0)
            if i % 4 == 3
            else Step(
                event=i,
                candidates=(Candidate(text="Offer help", y_accept=float(rng.random() < 0.5), logged=True),),
                y_need=float(rng.random() < 0.6),
            )
            for i in range(8)
        )
        events = tuple(Event(time=60.0 * i, text=f"Opens file {rng.integers(9)}.") for i in range(8))
        yield Stream(id=f"s{number}", events=events, steps=steps)


def test_a_probe_and_the_evaluation_of_its_scores_judge_alike(tmp_path, capsys):
    write_streams(tmp_path / "streams.jsonl", streams_with_unshown_offers())
    config = ProbeConfig(data=DataConfig(name="jsonl", source=str(tmp_path / "streams.jsonl"), folds=4, fold=0))
    with pytest.raises(ScoresError, match=r"^data, row \d+, propensity: found no propensity beside logged = false"):
        train_and_evaluate_probe(config, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    train_and_evaluate_probe(config, tmp_path / "probe", shown_only=True)
    assert "What decisions cost, per step, of shown offers only" in capsys.readouterr().out
    scores = str(tmp_path / "probe" / "scores.parquet")
    with pytest.raises(ScoresError, match="found no propensity beside logged = false"):
        evaluate_scores(scores, epath.Path(tmp_path / "out"), OperatingPoint())
    out = epath.Path(tmp_path / "out")
    evaluate_scores(scores, out, OperatingPoint(), shown_only=True, calibrator="temperature")  # the probe's own
    trees = [json.loads((tmp_path / name / "evaluation.json").read_text()) for name in ("probe", "out")]
    assert trees[0] == trees[1]
