"""Latency of an export on one's own streams, and domain transfer of one's own scores."""

import dataclasses
import json

import numpy as np
import pytest
import tiny_export
from paper_study import SETTINGS, cells, columns, given_of
from tiny_study import stream

from prism_jax.decision import gate
from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation import protocol
from prism_jax.experiments.paper import exported, latency, pareto, runner
from prism_jax.experiments.paper.study import SkippedError
from prism_jax.runtime.dataclass_config import to_dict
from prism_jax.scores import Scores
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.sources import DataConfig, load_splits
from prism_jax.training.run_config import RunConfig

pytestmark = pytest.mark.usefixtures("compile_quickly")
MAPS = {f"{signal}_{thinking}": Temperature(1.3) for signal in ("need", "accept") for thinking in ("fast", "slow")}
POINT = OperatingPoint(c_fa=1.0, c_fn=1.5, margin=0.1, trigger="margin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, template, model, draw_params):
    return tiny_export.export(tmp_path_factory.mktemp("tiny"), template, model, draw_params(model))


@pytest.fixture(scope="module")
def timed(folder, tmp_path_factory, simulated):
    """The model with a slow pass, on two streams; what the export says of both passes is put in its place."""
    path = tmp_path_factory.mktemp("streams") / "streams.jsonl"
    write_streams(path, simulated[:2])
    read = exported.read_exported
    with pytest.MonkeyPatch.context() as patch:
        writing = {"field_tokens": 2, "response_tokens": 2}
        changed = {"maps": MAPS, "point": POINT, "writing": writing}
        patch.setattr(exported, "read_exported", lambda of: dataclasses.replace(read(of), **changed))
        found = exported.Model(str(folder), str(path))
        assert found.timing.phases["slow"].tokens.min() > 0
    return found


@pytest.mark.slow
def test_policies_spend_what_their_passes_took_by_the_exports_own_maps_and_costs(timed, simulated):
    study = timed.study(None, SETTINGS)
    steps = sum(len(stream.steps) for stream in simulated[:2])
    phases, policies = latency.make(study).sheets
    assert cells(phases, "fast pass, one step")["count"].value == steps
    fast, slow = (timed.timing.phases[name] for name in ("fast", "slow"))
    found = {name: cells(policies, name, "ablation B") for name in ("fast only", "slow only", "slow on margin")}
    assert found["fast only"]["p50"].value == pytest.approx(np.median(fast.seconds))
    assert found["slow only"]["p95"].value == pytest.approx(np.quantile(fast.seconds + slow.seconds, 0.95))
    logit = {name: np.log(p / (1 - p)) for name in MAPS for p in [getattr(study.scores, f"p_{name}")]}
    need, accept = (1 / (1 + np.exp(-logit[f"{signal}_fast"] / 1.3)) for signal in ("need", "accept"))
    near = np.abs(accept - gate.threshold(need, 1.0, 1.5)) <= 0.1
    assert found["slow on margin"]["slow_rate"].value == pytest.approx(near.mean())
    assert found["slow on margin"]["tokens"].value == pytest.approx((fast.tokens + near * slow.tokens).mean())


@pytest.mark.slow
def test_the_frontier_takes_labels_from_the_streams_or_says_that_there_are_none(timed):
    (sheet,) = pareto.by_seconds(timed.study(None, SETTINGS)).sheets
    assert len(sheet.lines) == 16 and "yes" in {line.cells["frontier"] for line in sheet.lines}
    study = timed.study(None, SETTINGS)
    data = dataclasses.replace(study.at(), steps=Scores.from_columns(_unlabelled(study.at().steps)))
    with pytest.raises(SkippedError, match="labels: found no step with both"):
        pareto.by_seconds(dataclasses.replace(study, prepared=(data, {})))


def _unlabelled(scores):
    return {name: column for name, column in scores.columns().items() if name not in ("y_need", "y_accept")}


@pytest.mark.slow
def test_a_student_without_a_slow_pass_has_its_fast_row_alone(folder, tmp_path, simulated):
    write_streams(tmp_path / "streams.jsonl", [without_answers(simulated[0])])
    model = exported.Model(str(folder), str(tmp_path / "streams.jsonl"), {"c_fn": 5.0})
    study = model.study(None, SETTINGS)
    assert study.point.c_fn == 5.0
    phases, policies = latency.make(study).sheets
    assert len(phases.lines) == 2 and [line.name for line in policies.lines] == ["fast only"]
    with pytest.raises(SkippedError, match="has no slow pass"):
        pareto.by_seconds(study)


def of_domains(**changes):
    values = columns()
    names = dict.fromkeys(values["stream"])
    domain = {name: ("writing", "coding", "life")[place % 3] for place, name in enumerate(names)}
    return values | {"domain": [domain[name] for name in values["stream"]]} | changes


def test_domain_transfer_of_scores_fits_its_temperatures_on_the_other_domains(tmp_path):
    inputs = dataclasses.replace(given_of(of_domains(), tmp_path / "out"), held_out="writing")
    (sheet,) = runner._make("domain_transfer", inputs).sheets
    scores = inputs.studies_in_memory[0].scores
    fits = protocol.calibrate(scores.take(scores.domain != "writing"))
    for section, rows in (("writing", scores.domain == "writing"), ("other domains", scores.domain != "writing")):
        data = protocol.prepare(scores.take(rows), fits, inputs.point)[0]
        gold = (data.label("need") * data.label("accept"))[data.judged]
        for name, form in (("raw", "raw"), ("calibrated", "calibrated")):
            made = "calibrated elsewhere" if (section, name) == ("writing", "calibrated") else name
            offer = data.decide("dynamic", form).offer[data.judged]
            f1 = 2 * (offer & (gold == 1)).sum() / (offer.sum() + gold.sum())
            assert cells(sheet, made, section)["f1"].value == pytest.approx(f1)
    assert cells(sheet, "calibrated elsewhere")["audbc"].paper == pytest.approx(0.8466)
    numbers = [len(set(scores.stream[(scores.split == "test") & rows])) for rows in (scores.domain == "writing", rows)]
    assert f"intervals over {min(numbers)} to {max(numbers)} streams, by row." in sheet.note


def test_domain_transfer_of_acceptance_alone_has_no_error_of_need(tmp_path):
    values = {name: column for name, column in of_domains().items() if "need" not in name and name != "p_both_true"}
    inputs = dataclasses.replace(given_of(values, tmp_path / "out"), held_out="writing")
    (sheet,) = runner._make("domain_transfer", inputs).sheets
    assert sheet.title == "Domain transfer, p_accept alone" and "ece_need" not in sheet.measures
    assert all(line.cells["ece_accept"].value > 0 for line in sheet.lines)


@pytest.mark.parametrize(
    ("changes", "held_out", "said", "message"),
    [
        ({}, "cooking", None, "--held_out: found 'cooking', expected one of several domains: coding, life, writing"),
        ({}, "life", "writing", "data.without_domain: found 'writing', expected --held_out=life"),
        ({"domain": None}, "life", None, "domain: there is no such column"),
    ],
)
def test_domain_transfer_of_scores_says_what_is_missing(tmp_path, changes, held_out, said, message):
    values = {name: column for name, column in of_domains(**changes).items() if column is not None}
    inputs = dataclasses.replace(given_of(values, tmp_path / "out"), held_out=held_out)
    if said is not None:
        config = RunConfig(data=DataConfig(without_domain=said))
        (tmp_path / "config.json").write_text(json.dumps(to_dict(config)))
    with pytest.raises(ValueError, match=message):
        runner._make("domain_transfer", inputs)


def test_training_leaves_out_a_domain_and_nothing_else_does(tmp_path):
    streams = [dataclasses.replace(stream(number), domain=("coding", "writing")[number % 2]) for number in range(20)]
    write_streams(tmp_path / "s.jsonl", streams)
    data = DataConfig(name="jsonl", source=str(tmp_path / "s.jsonl"), validation=0.3)
    whole, without = (
        load_splits(dataclasses.replace(data, without_domain=name), SimulatorConfig()) for name in ("", "writing")
    )
    assert {one.domain for one in (*without.train, *without.validation)} == {"coding"}
    assert (without.calibration, without.test) == (whole.calibration, whole.test)
    kept = {one.id for one in (*whole.train, *whole.validation) if one.domain == "coding"}
    assert {one.id for one in (*without.train, *without.validation)} == kept
    with pytest.raises(ValueError, match="without_domain: found 'cooking', expected one of several training domains"):
        load_splits(dataclasses.replace(data, without_domain="cooking"), SimulatorConfig())
