"""The paper's tables on a simulated scores file: every cell is the library's own number, and files are constant."""

import dataclasses
import importlib
import inspect
import json
import math
import re
import sys

import numpy as np
import pytest
from etils import epath
from paper_study import ON_SCORES, SETTINGS, cells, columns, given_of, study_of
from tiny_trainings import RECIPES

from prism_jax.decision import drift, gate, metrics
from prism_jax.decision.audbc import audbc_appendix_paper, audbc_main_paper
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.decision.uncertainty import mcnemar, paired_rates, rate_intervals
from prism_jax.evaluation import protocol
from prism_jax.evaluation.policy_rows import Decided
from prism_jax.experiments.paper import (
    case_study,
    drawing,
    inference,
    methods,
    outputs,
    pareto,
    pathways,
    references,
    registry,
    runner,
)
from prism_jax.experiments.paper import cells as cells_of
from prism_jax.experiments.paper.cells import PRINTED
from prism_jax.experiments.paper.sheet import NOT_REPRODUCIBLE, Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, IntervalSettings, SkippedError, Subject
from prism_jax.experiments.paper.tallies import Tally
from prism_jax.experiments.paper.trainings import Trainings
from prism_jax.report import tables
from prism_jax.report.tables import UNEQUAL
from prism_jax.runs.running import Running
from prism_jax.runs.store import Store
from prism_jax.scores import Scores, ScoresError, write_scores
from prism_jax.scores.labels import acceptance_weight
from studies.registry import STUDIES as OUTSIDE


@pytest.fixture(scope="module")
def study():
    return study_of(columns())


@pytest.fixture(scope="module")
def sheets(study):
    """The sheets of every experiment that runs on scores, by name."""
    return {sheet.name: sheet for name in ON_SCORES for sheet in registry.function(name)(study).sheets}


@pytest.fixture(scope="module")
def evaluation(study):
    return protocol.evaluate(study.scores, study.fits, study.point)


def agrees(found, row):
    for key in ("recall", "precision", "accuracy", "false_alarm", "f1"):
        assert found[key].value == pytest.approx(getattr(row, key), nan_ok=True)
    if "cost" in found:
        assert found["cost"].value == pytest.approx(row.realised_cost)
    if "slow_rate" in found:
        assert found["slow_rate"].value == pytest.approx(row.slow_rate)


@pytest.mark.parametrize(
    ("sheet", "line", "section", "policy", "form"),
    [
        ("main", "always offers", None, "always", "raw"),
        ("main", "gate", None, "dynamic", "calibrated"),
        ("main", "deployed policy", None, "slow_on_margin", "calibrated"),
        ("thresholds", "fixed τ", "raw signals", "fixed", "raw"),
        ("thresholds", "dynamic τ(p_need)", "calibrated signals", "dynamic", "calibrated"),
        ("inference", "slow only", None, "slow_only", "calibrated"),
        ("inference", "slow on margin", None, "slow_on_margin", "calibrated"),
        ("mechanism", "accept only", None, "static", "calibrated"),
        ("mechanism", "need only", None, "need_only", "calibrated"),
        ("mechanism", "need only, as printed", None, "always", "raw"),
        ("mechanism", "both, uncalibrated", None, "dynamic", "raw"),
        ("margin_sweep", "0", None, "dynamic", "calibrated"),
        ("margin_sweep", "1", None, "slow_only", "calibrated"),
        ("cost_margin_grid", "0.1", "1:2", "slow_on_margin", "calibrated"),
        ("cost_sensitivity", "1:2", None, "slow_on_margin", "calibrated"),
        ("drift", "T = 1, ε = 0", None, "dynamic", "calibrated"),
    ],
)
def test_rates_costs_and_areas_are_those_of_the_evaluation(sheets, evaluation, sheet, line, section, policy, form):
    row = next(row for row in evaluation.policies if row.policy == policy and row.form in (form, None))
    found = cells(sheets[sheet], line, section)
    agrees(found, row)
    if "audbc" in found and policy != "always":
        (row,) = (row for row in evaluation.ratios.rows if (row.policy, row.form) == (policy, form))
        assert found["audbc"].value == pytest.approx(row.audbc)


def test_the_printed_areas_are_those_of_the_formulas(study):
    """Of the decision layer on judged steps, and of the printed sums where a slow pass takes part."""
    of_paper = dataclasses.replace(study, method="paper")
    data, fast = study.at(), study.at().signals("fast", "calibrated")
    judged, gold = data.judged, (data.label("need") * data.label("accept"))[data.judged]
    ones, alone = np.ones(len(data.steps)), data.fits.offer_rates(data.steps)
    pairs = {"accept only": (ones, fast.accept), "need only": (fast.need, alone * ones), "both, calibrated": fast}
    sheets = [registry.function(name)(of_paper).sheets[0] for name in ("mechanism", "drift", "inference")]
    lines = {line.name: line.cells for sheet in sheets for line in sheet.lines}
    for name, pair in (pairs | {"T = 1, ε = 0": fast}).items():
        pair = Pass(*(p[judged] for p in pair))
        text, appendix = audbc_main_paper(pair, gold).area, audbc_appendix_paper(pair).area
        assert lines[name]["audbc_printed_text"].value == pytest.approx(text)
        assert lines[name]["audbc_printed_appendix"].value == pytest.approx(appendix)
    slow, points = data.signals("slow", "calibrated"), {"text": [], "appendix": []}
    thinks = data.decide("slow_on_margin", "calibrated").slow
    need, accept = (np.where(thinks, *p)[judged] for p in zip(slow, fast, strict=True))
    for c_fn in (4.0, 2.0, 1.0, 1 / 1.2):
        offer = gate.decide_with_slow(fast, slow, 1.0, c_fn, study.point.margin)[0][judged]
        tp, fp, fn = (offer * gold).sum(), (offer * (1 - gold)).sum(), ((1 - offer) * gold).sum()
        points["text"].append((fp / max(tp + fp, 1), (tp - fp - c_fn * fn) / ((1 + c_fn) * gold.sum())))
        offer = accept * (1 + c_fn * need) >= c_fn * need
        points["appendix"].append((offer.mean(), (offer * accept).mean()))
    for form, curve in points.items():
        curve.sort(key=lambda point: point[0])
        area = np.trapezoid([u for _, u in curve], [b for b, _ in curve])
        assert lines["slow on margin"][f"audbc_printed_{form}"].value == pytest.approx(area)
    assert {lines["need only, as printed"][key].value for key in PRINTED} == {0.0}


def test_by_the_method_as_printed_tables_only_gain_columns(study):
    for name in ("main", "thresholds", "inference", "drift", "margin_sweep", "cost_margin_grid", "cost_sensitivity"):
        made = registry.function(name)(dataclasses.replace(study, method="paper")).sheets[0]
        ours = registry.function(name)(study).sheets[0]
        more = () if name in ("main", "thresholds") else tuple(PRINTED)
        assert [key for key in made.measures if key not in ours.measures] == list(more)
        assert dataclasses.replace(made, measures=ours.measures).to_csv() == ours.to_csv()


def test_pathways_are_curated_by_the_method(study, monkeypatch):
    asked = []
    monkeypatch.setattr(pathways, "scores_of", lambda config, store, pathway: asked.append(pathway) or study.scores)
    subject = Subject(Trainings(Store("none"), recipes=RECIPES), settings=SETTINGS, method="paper")
    assert PRINTED.keys() <= registry.function("pathways")(subject).sheets[0].measures.keys()
    assert {(of.score, of.stratify) for of in asked} == {("paper", False)}


def test_both_methods_stand_beside_each_other_on_two_files(study, tmp_path):
    other = study_of(columns(seed=9))
    both = registry.function("methods")(dataclasses.replace(study, of_paper=other)).sheets[0]
    for section, of in {"curated by the corrected R_DC": study, "curated by Eq. 2 with one cut": other}.items():
        data = of.at()
        need, accept = data.signals("fast", "calibrated")
        costs = data.costs(Decided(accept >= 2 * need * (1 - accept), np.zeros(len(need), bool)))[data.judged]
        assert cells(both, methods.ODDS, section)["cost"].value == pytest.approx(costs.mean())
        alone = cells(registry.function("main")(of).sheets[0], "gate")["cost"]
        np.testing.assert_equal(vars(cells(both, "gate", section)["cost"]), vars(alone))  # without the paper's, NaN
    files = [given_of(columns(seed=seed), tmp_path / str(seed)).scores for seed in (0, 9)]
    call = runner.Inputs(scores=files[0], scores_paper=files[1], settings=IntervalSettings(resamples=20))
    assert runner.run_experiments(("methods",), call, epath.Path(tmp_path / "out")) == ["methods"]
    assert files[1] in json.loads((tmp_path / "out" / "methods.json").read_text())["scores_paper"]
    in_parts = dataclasses.replace(call, running=Running(most=0))
    with pytest.raises(SkippedError, match="methods: --scores_paper: two files are compared in memory only"):
        runner.run_experiments(("methods",), in_parts, epath.Path(tmp_path / "parts"))


def test_the_papers_numbers_stand_in_tables_and_figures_on_request_and_say_other_data(study, tmp_path):
    printed = "as printed.*|appendix.*"  # formulas
    for name in ON_SCORES:
        own = registry.function(name)(study).without_paper()
        for table in own.tables.values():
            assert not re.search(r"paper|GPT-4o|PRISM", re.sub(printed, "", table.to_markdown())), name
        assert all("_paper" not in sheet.to_csv().partition("\n")[0] for sheet in own.sheets)
    beside = registry.function("main")(study).sheets[0]
    own = beside.without_paper()
    assert [line.name for line in own.lines] == [line.name for line in beside.lines if line.section == "ours"]
    assert "*on other data: not reproducible" in beside.table().note and "Qwen3-8B-PRISM" in beside.table().note
    call = given_of(columns(), tmp_path)
    for with_paper in (False, True):
        folder = epath.Path(tmp_path / str(with_paper))
        runner.run_experiments(("main",), dataclasses.replace(call, paper_numbers=with_paper), folder)
        assert all(("the paper" in (folder / f"main.{kind}").read_text()) == with_paper for kind in ("md", "svg"))
        assert ", by one temperature per signal. " in (folder / "main.md").read_text()


def test_what_holds_by_construction_has_no_interval(sheets):
    for sheet in ("main", "method"):
        recalls = [cells(sheets[sheet], name)["recall"] for name in ("always offers", "never offers")]
        assert [recall.value for recall in recalls] == [1.0, 0.0]
        assert all(math.isnan(recall.low) for recall in recalls)
    assert cells(sheets["main"], "always offers")["precision"].low < cells(sheets["main"], "gate")["recall"].low < 1


def test_with_several_candidates_the_tables_charge_silence_as_the_evaluation_does(evaluation):
    """Three offers per step, between which the passes choose differently."""
    rng = np.random.default_rng(0)
    values = {name: np.repeat(np.asarray(column), 3) for name, column in columns().items()}
    values["candidate"] = np.tile(np.arange(3), len(values["stream"]) // 3)
    values |= {name: rng.random(len(values["stream"])) for name in ("p_accept_fast", "p_accept_slow")}
    values["y_accept"] = (rng.random(len(values["stream"])) < values["p_accept_slow"]).astype(float)
    study, one_candidate = study_of(values), evaluation
    evaluation = protocol.evaluate(study.scores, study.fits, study.point)
    sheets = {name: registry.function(name)(study).sheets[0] for name in ("inference", "drift", "significance")}
    assert all(UNEQUAL in sheet.note for sheet in sheets.values()) and tables.rate_table(evaluation).note == UNEQUAL
    assert UNEQUAL not in study_of(columns()).note() and not tables.rate_table(one_candidate).note
    for sheet, line, policy in (
        ("inference", "slow only", "slow_only"),
        ("inference", "slow on margin", "slow_on_margin"),
        ("drift", "T = 1, ε = 0", "dynamic"),
    ):
        found = cells(sheets[sheet], line)
        agrees(found, evaluation.policy(policy, "calibrated"))
        row = next(row for row in evaluation.ratios.rows if (row.policy, row.form) == (policy, "calibrated"))
        assert found["audbc"].value == pytest.approx(row.audbc)
    for rates in (line.cells for line in sheets["significance"].lines if not line.section.startswith("the paper")):
        difference = rates["second"].value - rates["first"].value
        assert rates["difference"].value == pytest.approx(difference, abs=1e-12)


def test_other_costs_of_the_grid_are_other_operating_points(study, sheets):
    point = OperatingPoint(c_fa=1.2, c_fn=1.0, margin=0.05)
    row = protocol.evaluate(study.scores, study.fits, point).policy("slow_on_margin", "calibrated")
    agrees(cells(sheets["cost_margin_grid"], "0.05", "1.2:1"), row)


def test_tables_share_areas_and_what_is_known_of_the_steps():
    study = study_of(columns())
    made = {name: registry.function(name)(study).sheets[0] for name in ("mechanism", "cost_sensitivity", "inference")}
    shown = {name for name in study.tally.kept if name.startswith("area.slow_on_margin")}
    assert shown == {f"area.slow_on_margin.calibrated.{study.point.margin}"}
    ((on_margin, _),) = (study.tally.kept[name] for name in shown)
    assert all(line.cells["audbc"].value == on_margin.value for line in made["cost_sensitivity"].lines)
    own, other = study.at(), study.at(dataclasses.replace(study.point, c_fn=8.0))
    assert other.signal("need_fast", "calibrated") is own.signal("need_fast", "calibrated")
    fresh = dataclasses.replace(own, point=other.point)
    for policy in ("dynamic", "slow_on_margin"):
        np.testing.assert_array_equal(other.decide(policy, "calibrated"), fresh.decide(policy, "calibrated"))
        np.testing.assert_array_equal(
            other.costs(other.decide(policy, "raw")), fresh.costs(fresh.decide(policy, "raw"))
        )


SWEEPS = {
    "fixed_threshold": ("fixed", (0.1, 0.3, 0.5, 0.7, 0.9)),
    "price": ("slow_on_value", (0.0, 0.003, 0.01)),
    "trigger": (None, ("margin", "value")),
    "policy": (None, ("fixed", "static", "dynamic")),
    "margin": ("slow_on_margin", (0.0, 0.05, 0.5)),
    "c_fn": ("product", (0.5, 2.0, 8.0)),
}


@pytest.mark.parametrize("field", SWEEPS)
def test_a_table_that_sweeps_a_field_of_the_operating_point_has_the_numbers_of_each(study, field):
    policy, values = SWEEPS[field]
    for value in values:
        data = study.at(dataclasses.replace(study.point, **{field: value}))
        decisions = cells_of.decisions(data, policy or data.deployed(), "calibrated")
        row = protocol.evaluate(study.scores, study.fits, data.point).policy(policy or data.deployed(), "calibrated")
        agrees(cells_of.rates(study.tally, decisions) | {"cost": cells_of.cost(study.tally, decisions)}, row)


def test_a_tally_refuses_other_steps_and_other_maps(study):
    data, tally = study.at(), Tally(SETTINGS.keywords())
    cells_of.cost(tally, cells_of.decisions(data, "dynamic", "calibrated"))
    fewer = dataclasses.replace(data, steps=data.steps.take(np.arange(12)), thought=data.thought.take(np.arange(12)))
    for other in (fewer, dataclasses.replace(data, fits=dataclasses.replace(data.fits))):
        with pytest.raises(ValueError, match="a tally of their own"):
            cells_of.cost(tally, cells_of.decisions(other, "dynamic", "calibrated"))
        with pytest.raises(ValueError, match="a tally of their own"):
            methods.areas(tally, other, "dynamic", "calibrated", "corrected")


def test_policies_that_the_scores_do_not_compare_have_an_area_or_a_reason():
    without_need = study_of({key: of for key, of in columns().items() if not re.search("need|both", key)})
    areas = [methods.areas(without_need.tally, without_need.at(), policy, "calibrated", "paper")["audbc"].value
             for policy in ("dynamic", "static", "product", "need_only")]  # fmt: skip
    assert areas[0] == areas[1] == areas[2] > areas[3] > 0
    fast = study_of({key: of for key, of in columns().items() if not key.endswith("_slow")})
    assert math.isfinite(methods.areas(fast.tally, fast.at(), "fixed", "raw", "paper")["audbc_printed_appendix"].value)
    for policy in ("slow_only", "slow_on_margin", "slow_on_value"):
        for make in (methods.areas, inference.numbers):
            of = (fast.tally if make is methods.areas else fast, fast.at(), policy)
            with pytest.raises(SkippedError, match=f"found '{policy}' without a slow pass"):
                make(*of, *("calibrated", "corrected") * (make is methods.areas))


def test_tokens_are_those_of_both_passes(study, sheets):
    data = study.at()
    slow = data.decide("slow_on_margin", "calibrated").slow
    expected = data.steps.tokens_fast.mean() + (slow * data.steps.tokens_slow).mean()
    assert cells(sheets["inference"], "slow on margin")["tokens"].value == pytest.approx(expected)
    assert cells(sheets["inference"], "fast only")["tokens"].value == 100


def test_calibration_errors_are_those_of_the_evaluation(sheets, evaluation):
    for row in evaluation.signals:
        found = cells(sheets["calibration_quality"], row.form, f"{row.thinking} pass")
        values = {"t": row.temperature, "ece": row.ece, "debiased": row.ece_debiased, "brier": row.brier}
        assert {name: found[f"{name}_{row.signal}"].value for name in values} == pytest.approx(values)


def test_drift_flips_what_the_library_flips(study, sheets):
    data = study.at()
    signals = [data.signal(f"{name}_fast", "calibrated") for name in ("need", "accept")]
    for (temperature, epsilon), line in zip(drift.PAPER_GRID, sheets["drift"].lines, strict=True):
        decided = drift.decide(*signals, 1.0, 2.0, temperature, epsilon)
        gold = (data.label("need") * data.label("accept"))[data.judged]
        rates = metrics.rates(metrics.confusion(np.asarray(decided)[data.judged], gold))
        assert line.cells["f1"].value == pytest.approx(float(rates.f1))
        flips = drift.flip_rate(*signals, 1.0, 2.0, temperature, epsilon)
        assert line.cells["flip_rate"].value == pytest.approx(float(flips))
    areas = {key: line.cells["audbc"].value for key, line in zip(drift.PAPER_GRID, sheets["drift"].lines, strict=True)}
    assert len({area for (temperature, _), area in areas.items() if temperature == 1}) > 2, areas


def test_significance_is_the_librarys_paired_difference(study, sheets):
    data, judged = study.at(), study.at().judged
    first, second = data.decide("static", "calibrated"), data.decide("dynamic", "calibrated")
    gold = (data.label("need") * data.label("accept"))[judged]
    found = paired_rates(
        first.offer[judged], second.offer[judged], gold, streams=data.steps.stream[judged], names=["f1"], resamples=20
    )["f1"]
    ours = cells(sheets["significance"], "F1", "gate minus p_accept alone")["difference"]
    assert (ours.value, ours.low, ours.high) == pytest.approx(tuple(found[:3]))
    test = cells(sheets["significance_mcnemar"], "gate minus p_accept alone")
    assert [test[name].value for name in ("only_first", "only_second", "p_mcnemar")] == pytest.approx(
        list(mcnemar(first.offer[judged], second.offer[judged], gold))
    )


def test_intervals_of_weighted_rates_are_the_librarys():
    study = study_of(columns(seed=3, logging=True, slow=False))
    data = study.at()
    judged, offer = data.judged, data.decide("dynamic", "calibrated").offer
    gold, weight = (data.label("need") * data.label("accept"))[judged], acceptance_weight(data.steps)[judged]
    assert len(set(weight)) > 2 and (weight % 1 != 0).any()
    streams = data.steps.stream[judged]
    found = rate_intervals(offer[judged], gold, streams=streams, weight=weight, names=["f1"], resamples=20)["f1"]
    ours = cells(registry.function("main")(study).sheets[0], "gate")["f1"]
    assert (ours.value, ours.low, ours.high) == pytest.approx(tuple(found[:3]))


def test_intervals_enclose_their_estimates_and_shares_are_shares(sheets):
    for sheet in sheets.values():
        for line in sheet.lines:
            for key, cell in line.cells.items():
                if isinstance(cell, Number) and not math.isnan(cell.low):
                    assert cell.low - 1e-9 <= cell.value <= cell.high + 1e-9, (sheet.name, line.name, key)
                if isinstance(cell, Number) and sheet.measures[key].unit == "%" and key not in sheet.signed:
                    assert not abs(cell.value) > 1 and not abs(cell.paper) > 1, (sheet.name, line.name, key)


def test_the_case_study_is_the_step_that_the_slow_pass_mends_most_clearly(study):
    data = study.at()
    step = case_study.choose(data)
    fast, both = data.decide("dynamic", "calibrated"), data.decide("slow_on_margin", "calibrated")
    gold = data.label("need") * data.label("accept") == 1
    better = both.slow & (fast.offer != gold) & (both.offer == gold)
    assert better[step]
    tau = 1 / (1 + 2 * data.signal("need_slow", "calibrated"))
    distance = np.abs(data.signal("accept_slow", "calibrated") - tau)
    assert distance[step] == distance[better].max()


def test_the_case_study_without_a_slow_pass_is_an_offer_that_ends_a_silence_rightly():
    data = study_of(columns(slow=False)).at()
    step = case_study.choose(data)
    offer, gold = data.decide("dynamic", "calibrated").offer, data.label("need") * data.label("accept") == 1
    stream, number = data.steps.stream, data.steps.step
    before = {(name, place): made for name, place, made in zip(stream, number, offer, strict=True)}
    opens = [
        made and not before.get((name, place - 1), True)
        for name, place, made in zip(stream, number, offer, strict=True)
    ]
    distance = np.abs(data.signal("accept_fast", "calibrated") - 1 / (1 + 2 * data.signal("need_fast", "calibrated")))
    assert distance[step] == distance[np.array(opens) & gold].max()


def test_the_case_study_says_what_happened(study):
    data = study.at()
    step = case_study.choose(data)
    words = case_study.story(data, step).split("\n")
    slow = data.signal("accept_slow", "calibrated")[step]
    assert f"p_accept {slow:.3f}" in words[1]
    right = data.label("need")[step] * data.label("accept")[step] == 1
    assert words[1].startswith("The slow pass offers" if right else "The slow pass stays silent")
    assert words[2] == ("Right was an offer." if right else "Right was silence.")
    assert words[0].startswith("The fast pass stays silent" if right else "The fast pass offers")


def test_the_frontier_has_no_point_that_another_beats():
    points = [(1.0, 0.5), (2.0, 0.7), (2.0, 0.6), (3.0, 0.7), (1.0, 0.5)]
    assert pareto.frontier(points) == [True, True, False, False, True]
    assert pareto.frontier([*points, (1.0, math.nan)]) == [True, True, False, False, True, False]


def test_every_experiment_has_a_function_and_the_page_lists_it(root):
    page = (root / "docs" / "paper.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed == set(registry.EXPERIMENTS)
    for name, experiment in registry.EXPERIMENTS.items():
        assert callable(registry.function(name)), name
        assert experiment.shows.endswith(".")


def test_every_study_is_a_module_and_has_a_name_of_its_own(root):
    assert len({*registry.STUDIES, *registry.EXPERIMENTS, *OUTSIDE}) == len(registry.listed())
    of_package = {f"prism_jax.experiments.{name}": study for name, study in registry.STUDIES.items()}
    for name, study in (of_package | {f"studies.{name}": study for name, study in OUTSIDE.items()}).items():
        module = importlib.import_module(name)
        assert callable(module.define_flags)
        text = inspect.getsource(sys.modules[module.main.__module__])
        text += inspect.getsource(sys.modules[module.define_flags.__module__])
        if "workdir_flag" in text:  # the flag that trainings share
            text += inspect.getsource(importlib.import_module("studies.runner"))
        assert re.search(r"\ndef main\(\) -> Itera(?:ble|tor)\[Table\b", text), name
        assert study.shows.endswith(".")
        for flag in "|".join(study.needs).split("|"):
            assert not flag or f'"{flag}", ' in text, (name, flag)


def test_an_unknown_name_lists_all():
    with pytest.raises(ValueError, match="experiment: found 'tables', expected all or one of main, thresholds"):
        registry.chosen("tables")
    assert registry.chosen("all") == tuple(registry.EXPERIMENTS)
    assert registry.chosen("pareto") == ("pareto",)


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(drawing, "can_draw", lambda: False)


def test_a_later_call_takes_the_place_of_an_earlier_one_of_its_name(study, tmp_path):
    table = registry.function("main")(study).sheets[0].table()

    def write(name, *stems):
        by_stem = dict.fromkeys(stems, table)
        outputs.write(epath.Path(tmp_path), name, ExperimentResult(study_tables=by_stem), {})
        return {path.name for path in tmp_path.glob("*.csv")}

    assert write("other", "other") == {"other.csv"}
    assert write("of", "old", "both") == {"other.csv", "old.csv", "both.csv"}
    (tmp_path / "notes.csv").touch()
    assert write("of", "both", "new") == {"other.csv", "both.csv", "new.csv", "notes.csv"}
    (tmp_path / "of.json").write_text("cut")  # then it is not known what may go
    assert write("of", "new") == {"other.csv", "both.csv", "new.csv", "notes.csv"}


def test_without_matplotlib_tables_are_written_and_one_line_names_the_extra(tmp_path, no_figures, capsys):
    runner.run_experiments(("main",), given_of(columns(), tmp_path), epath.Path(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"main.csv", "main.md", "main.tex", "main.json"}
    assert capsys.readouterr().out.count("prism_jax[figures]") == 1


def test_one_experiment_that_cannot_run_is_an_error(tmp_path):
    with pytest.raises(SkippedError, match="inference: slow pass: there is no column p_"):
        runner.run_experiments(("inference",), given_of(columns(slow=False), tmp_path), epath.Path(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value", "message"), [("y_need", 1.0, "y_need: "), ("p_need_fast", None, "p_need_fast: found null")]
)
def test_scores_that_cannot_be_used_are_one_line_that_names_the_place(name, value, message, tmp_path):
    """Those that calibration refuses, and those that the reader refuses."""
    path = tmp_path / "scores.jsonl"
    write_scores(path, Scores.from_columns(columns()))
    lines = map(json.loads, path.read_text().splitlines())
    path.write_text("".join(json.dumps(line | {name: value}) + "\n" for line in lines))
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        _ = runner.Inputs(scores=str(path)).studies
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_scores_of_a_folder_are_one_study(tmp_path):
    scores = Scores.from_columns(columns())
    number = scores.numbered("stream")[1]
    for i in range(2):
        write_scores(tmp_path / f"{i}.parquet", scores.take(number % 2 == i))
    given = runner.Inputs(scores=str(tmp_path))
    assert len(given.studies[0].scores) == len(scores) and given.facts["scores"] == str(tmp_path)
    write_scores(tmp_path / "2.parquet", scores.take(number == 0))
    with pytest.raises(ScoresError, match=r"2\.parquet, row 0: found .* a second time"):
        _ = runner.Inputs(scores=str(tmp_path)).studies


def test_a_sheet_with_sections_texts_and_differences():
    measures = {"a": Measure("a", "A share.", "%", 0), "b": Measure("b", "A text.")}
    lines = (Line("x", {"a": Number(0.5, 0.25, 1.0, 0.75), "b": "t"}, "one"), Line("y", {"a": Number(-0.5)}, "two"))
    sheet = Sheet("s", "S", "row", measures, lines, "Note.", signed=("a",))
    table = sheet.table()
    assert table.headings == ("row", "a (%)", "paper* (%)", "b")
    assert [row.cells for section in table.sections for row in section.rows] == [
        ("+50 [+25, +100]", "+75", "t"),
        ("−50", "–", "–"),
    ]
    assert table.note == f"Note. *{NOT_REPRODUCIBLE}."
    assert sheet.to_csv().splitlines() == [
        "section,row,a,a_low,a_high,a_paper,b,paper_status",
        f"one,x,0.5,0.25,1,0.75,t,{NOT_REPRODUCIBLE}",
        "two,y,-0.5,,,,,",
    ]


def test_the_papers_numbers_are_those_of_its_tables():
    """A sample of each table, typed a second time from the paper."""
    assert references.MAIN["Qwen3-8B-PRISM"]["f1"] == pytest.approx(0.8661)
    assert references.THRESHOLDS["static"]["recall"] == pytest.approx(0.3854)
    assert references.GRID["1.2:1, 0.1"] == pytest.approx(
        dict(
            recall=0.8962,
            precision=0.7683,
            accuracy=0.7959,
            false_alarm=0.2316,
            f1=0.8374,
            audbc=0.7934,
            tokens=528,
            latency=0.178,
        )
    )
    assert references.CALIBRATION["calibrated"]["t_need"] == 0.5
    assert references.COSTS["1:4"]["slow_rate"] == pytest.approx(0.1545)
    assert references.DRIFT["T = 1.5, ε = −0.3"]["flip_rate"] == pytest.approx(0.7295)
    assert IntervalSettings().keywords() == {"resamples": 2000, "seed": 0, "level": 0.95}
