"""The studies that train: how variants differ, what is measured of them, how seeds are paired, and their tables."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from etils import epath
from scipy import stats
from synthetic_scores import make_columns

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.protocol import calibrate, evaluate, prepare
from prism_jax.experiments.simulated_users import population
from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores, read_scores
from prism_jax.streams.edit import keep_candidates, map_steps
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import SLOW_FIELDS
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.slow import field_accuracy
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.pathway_config import SECOND_STAGES, PathwayConfig
from prism_jax.training.pathways.curated import already_curated, curate
from prism_jax.training.students import THINKING
from prism_jax.training.workdir import Workdir
from studies import adapters, distillation, need_target, thinking, training_pathways
from studies.runner import BAYES, EXACT, FAST, MARGIN, Comparison, Costs, Measured, costs, laid_over

pytestmark = pytest.mark.usefixtures("compile_quickly")
POINT = OperatingPoint(c_fa=1.0, c_fn=2.0)
SHALLOW = {"student.num_layers": 1, "student.unroll": 1}
SIGNALS = ("need", "accept")
RNG = np.random.default_rng(0)


def scores_of(seed, **columns):
    """Scores of both passes whose slow signals know more."""
    made = make_columns(seed=seed, streams=20, steps=6) | {"tokens_slow": np.full(120, 20)}
    return Scores.from_columns(made | {name: [value] * 120 for name, value in columns.items()})


def rows(streams):
    return [(stream.id, step.event) for stream in streams for step in stream.steps]


def cells(section):
    return {row.name: row.cells for row in section.rows}


# The runner.


def test_settings_replace_fields_of_several_sections_at_once():
    # A second stage without a start, and a start without a second stage, are refused.
    config = laid_over(training_pathways.COMPARISON.base, {"pathway.name": "dft", "training.start": "first"})
    assert (config.pathway.name, config.training.start) == ("dft", "first")
    assert config.training.steps == training_pathways.COMPARISON.base.training.steps


def test_differences_are_paired_and_intervals_are_of_seeds_or_of_streams():
    wide = [RNG.normal(level, 1.0, 200) for level in (0.0, 5.0, 9.0)]
    stream = [np.arange(200).astype(str)] * 3
    first, shifts = Measured(wide, stream), (0.24, 0.25, 0.26)
    change = first - Measured([values - shift for values, shift in zip(wide, shifts, strict=True)], stream)
    assert change.by_seed() == "+0.240, +0.250, +0.260"
    assert (change.over_seeds(sign="+"), change.over_streams(2)) == ("+0.250 [+0.225, +0.275]", "0.25 [0.25, 0.25]")
    assert first.mean == pytest.approx(np.concatenate(wide).mean())
    low, high = stats.t.interval(0.95, 2, np.mean(wide), stats.sem([values.mean() for values in wide]))
    assert first.over_seeds() == f"{np.mean(wide):.3f} [{low:.3f}, {high:.3f}]"
    half = 1.96 * np.std(wide) / np.sqrt(600)  # streams of several seeds are different ones
    value, low, high = map(float, first.over_streams().replace("[", "").replace("]", "").replace(",", "").split())
    np.testing.assert_allclose([value, low, high], np.mean(wide) + half * np.array([0, -1, 1]), atol=0.03)
    assert Measured(wide[:1], stream[:1]).over_seeds(sign="+") == f"{wide[0].mean():+.3f}"
    assert Measured([np.array(0.25)] * 3).over_seeds() == "0.250", "equal seeds tell no spread"
    with pytest.raises(AssertionError, match="on other steps"):
        first - Measured(wide, [names[::-1] for names in stream])


def test_costs_are_those_of_the_decisions_under_truth_and_labels():
    scores = scores_of(1)
    found, (data, _) = costs(scores, POINT), prepare(scores, calibrate(scores), POINT)
    steps, rule = data.steps, data.decide("dynamic", "calibrated").offer
    speak, silent = 1 - steps.p_accept_true, 2 * steps.p_both_true
    np.testing.assert_allclose(found.expected[FAST], np.where(rule, speak, silent))
    labels = np.where(rule, 1 - steps.y_accept, 2 * steps.y_need * steps.y_accept)
    np.testing.assert_allclose(found.realised[FAST], labels)
    np.testing.assert_allclose(found.expected[BAYES], np.minimum(speak, silent))
    np.testing.assert_allclose(found.expected["never"], silent)
    # Both are independent here, so that the unconditional need is as good.
    np.testing.assert_allclose(found.expected[EXACT], found.expected[BAYES])
    shares = {name: slow.mean() for name, slow in found.slow.items()}
    assert shares["slow pass"] == 1 and shares[FAST] == shares["always"] == 0
    assert {"p_accept alone", MARGIN, "margin, 25%", "value, 25%"} <= set(shares)
    raw = costs(scores, POINT, "raw").expected[FAST]
    np.testing.assert_allclose(raw, np.where(data.decide("dynamic", "raw").offer, speak, silent))


@pytest.mark.slow
def test_a_variant_continues_from_its_start_with_the_same_seed(tmp_path, monkeypatch):
    """Both stages of thinking, with a small part of the budget."""
    few = {"data.train_streams": 24, "training.steps": 2, "training.checkpoint_every": 2}
    small = {**few, **SHALLOW, "data.calibration_streams": 12, "data.test_streams": 12, "writing.field_tokens": 4}
    second = dataclasses.replace(thinking.SECOND, settings={**thinking.SECOND.settings, **few})
    monkeypatch.setitem(thinking.STAGES, "second stage", second)
    comparison = Comparison(laid_over(THINKING, small), thinking.STAGES, seeds=(3,))
    title, *shown = thinking.tables(comparison, Store(tmp_path))
    assert {len(row.cells) for section in title.sections for row in section.rows} == {len(SLOW_FIELDS) + 1}
    assert len(shown) % (2 * len(thinking.RATIOS)) == 0
    [folder] = tmp_path.glob("student-own-fields-*")
    config = Workdir(epath.Path(folder)).load_config()
    assert (config.pathway.own_fields, config.training.seed, config.simulator.seed) == (1.0, 3, 3)
    assert epath.Path(config.training.start).name.startswith("student-")


# Thinking.


def test_pooled_scores_are_calibrated_by_seed_and_show_what_thinking_is_worth(monkeypatch):
    tables = [scores_of(seed) for seed in (0, 1)]
    pooled = thinking.pooled(tables)
    assert len(pooled) == 240 and len(set(pooled.stream)) == 40
    np.testing.assert_array_equal(
        pooled.p_need_slow, np.concatenate([calibrate(of).calibrated("need", "slow", of) for of in tables])
    )
    monkeypatch.setattr(thinking, "accuracy", lambda *_: dict.fromkeys((*SLOW_FIELDS, "all"), 0.5))
    comparison = Comparison(THINKING, {"first stage": lambda config, _: scores_of(config.training.seed)}, seeds=(0, 1))
    written, *shown = thinking.tables(comparison, Store("none"))
    assert [row.cells for row in written.sections[0].rows] == [("50.0",) * 5] * 2
    first = next(
        table for table in shown if table.title.endswith("first stage, r = 1") and "expected cost" in str(table)
    )
    place = [column.label for column in first.columns].index("expected cost")
    by_name = {row.name: row.cells[place] for section in first.sections for row in section.rows}
    assert float(by_name["slow only"]) < float(by_name["dynamic"]), "the slow signals know more"


def test_field_accuracy_counts_fields_and_whole_steps(simulated):
    def wrong(step):
        fields = dict(step.rationale)
        if step.event % 2:
            fields["risk"] = "something else"
        return dataclasses.replace(step, rationale=fields)

    written = [map_steps(stream, wrong) for stream in simulated[:4]]
    found = field_accuracy(written, simulated[:4])
    odd = [step.event % 2 for stream in simulated[:4] for step in stream.steps]
    assert found["risk"] == found["all"] == pytest.approx(1 - np.mean(odd))
    assert found["if_silent"] == found["evidence"] == 1.0
    bare = [map_steps(stream, lambda step: dataclasses.replace(step, rationale=None)) for stream in simulated[:2]]
    with pytest.raises(ValueError, match="rationale: found no step that has one"):
        field_accuracy(written[:2], bare)


# Both meanings of need.


@pytest.mark.parametrize("regret", [False, True])
def test_both_meanings_are_compared_on_the_same_steps(regret):
    both = {target: [scores_of(seed, need_target=target) for seed in (0, 1)] for target in need_target.TARGETS}
    [section] = need_target.cost_table("", both, (2.0,), regret=regret).sections
    students = {target: [costs(of, POINT) for of in both[target]] for target in both}
    own, beyond = (
        {target: Costs.measured(of, "expected", rule) for target, of in students.items()} for rule in (FAST, BAYES)
    )
    means = {target: own[target].mean - regret * beyond[target].mean for target in own}
    marginal, given_accept, change, seeds, thinks = cells(section)[FAST]
    assert (marginal, given_accept) == tuple(f"{mean:.4f}" for mean in means.values())
    assert change.startswith(f"{means['given_accept'] - means['marginal']:+.4f} [")
    assert seeds == (own["given_accept"] - own["marginal"]).by_seed("+.4f") and thinks == ""
    assert cells(section)["slow pass"][-1] == "100%, 100%"
    assert cells(section)["p_accept alone"][3] == "+0.0000, +0.0000", "it does not read need"
    assert (EXACT in cells(section)) == regret


def test_fewer_rows_have_as_many_updates():
    comparison = need_target.comparison_of("switches", THINKING, 0.1)
    assert comparison.base.data.train_streams == 672 and comparison.base.training == THINKING.training
    targets = [
        variant.config(comparison.base, Store("none")).loss.need_target for variant in comparison.variants.values()
    ]
    assert targets == list(need_target.TARGETS)


# Pathways.


def test_the_tables_average_over_seeds_and_pair_by_seed():
    columns = [column.label for column in (*training_pathways.OUTCOMES, *training_pathways.ERRORS)]
    found = {
        name: [dict(zip(columns, RNG.normal(size=len(columns)), strict=True)) for _ in range(3)]
        for name in training_pathways.COMPARISON.variants
    }
    for of, plain, shift in zip(found["filtered, plain"], found["all data, plain"], (0.24, 0.25, 0.26), strict=True):
        of["cost"] = plain["cost"] - shift  # nearly equal for all seeds: the spread of the outcomes must cancel
    outcomes, errors, changes = training_pathways.tables(found)
    assert [len(row.cells) for row in errors.sections[0].rows] == [6] * 5
    means = [float(row.cells[0].split()[0]) for section in outcomes.sections for row in section.rows]
    assert means == pytest.approx([np.mean([of["cost"] for of in seeds]) for seeds in found.values()], abs=6e-4)
    assert cells(changes.sections[0])["filter, plain losses"] == ("-0.250 [-0.275, -0.225]",)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """A folder where pathways share a first stage."""
    return tmp_path_factory.mktemp("trainings")


@pytest.mark.slow
@pytest.mark.parametrize("name", training_pathways.NAMES)
def test_every_pathway_trains_on_the_studys_config(name, trainings):
    """With a small part of the budget."""
    small = {"data.train_streams": 64, "data.calibration_streams": 20, "data.test_streams": 20, "training.steps": 4}
    base = laid_over(training_pathways.COMPARISON.base, small | SHALLOW)
    scores = training_pathways.COMPARISON.variants[name](base, Store(trainings))
    reached = training_pathways.measure(scores, base.decision)
    assert set(reached) == {column.label for column in (*training_pathways.OUTCOMES, *training_pathways.ERRORS)}
    assert np.isfinite(reached.pop("gold F1")) == (reached["speak rate"] > 0)  # undefined for a gate that never opens
    assert np.isfinite(list(reached.values())).all()
    [folder] = trainings.glob(f"pathway-{name}-*")
    start = Workdir(folder).load_config().training.start
    assert bool(start) == (name in SECOND_STAGES)
    assert not start or Workdir(start).load_config().pathway == PathwayConfig(name="rdc_sft")


# Adapters.

ADAPTED = laid_over(adapters.BASE, {**adapters.ADAPTED, "training.start": "a base"})


def test_the_nearest_matrices_have_the_state_of_the_adapters_or_less_and_every_method_takes_as_many_updates():
    budget = adapters.trained_values(adapters.with_method(ADAPTED, f"rank {adapters.EQUAL}"))
    config = adapters.with_method(ADAPTED, adapters.NEAREST)
    assert 0.5 * budget < adapters.trained_values(config) <= budget < adapters.trained_values(ADAPTED)
    part, params = Partition.of(Qwen3(config.student), config.training.frozen), Qwen3(config.student).abstract_params()
    assert part.depth == config.student.num_layers - 1  # nothing below the last block trains
    assert part.trained == sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(part.split, params)))
    with pytest.raises(ValueError, match=r"^budget: found 10 values, expected at least those of one matrix"):
        adapters.nearest(ADAPTED, 10)
    for name in adapters.METHODS:  # all take the same updates on the same streams
        config = adapters.with_method(ADAPTED, name)
        assert (config.training.steps, config.training.batch, config.data) == (100, 32, ADAPTED.data)
        assert (config.lora.rank > 0) == name.startswith("rank")


def test_the_rate_of_the_lowest_validation_loss_is_taken(tmp_path, monkeypatch):
    losses = dict(zip(adapters.RATES, (0.9, 0.7, 0.8), strict=True))

    class Trained(Store):
        def finished(self, name, config):
            folder = epath.Path(tmp_path) / f"{config.training.learning_rate}"
            folder.mkdir(exist_ok=True)
            loss = losses.get(config.training.learning_rate, 0.0)
            lines = [{"step": 1, "validation_nll": 0.1}, {"step": 2, "validation_nll": loss}]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            return folder

    monkeypatch.setattr(adapters, "with_files", lambda config, *_: config)
    chosen = adapters.Adapted(adapters.FULL).chosen(of_seed(adapters.BASE, 4), Trained(tmp_path))
    assert (chosen.training.learning_rate, chosen.training.seed) == (adapters.RATES[1], 4)
    assert chosen.data.validation == 0.1 and chosen.training.start


def test_regrets_are_paired_with_those_of_all_parameters():
    levels = np.array([0.1, 0.5, 0.9])
    regrets = {
        name: Measured([np.asarray(level + 0.1 * (name == adapters.NEAREST)) for level in levels])
        for name in ("before", *adapters.METHODS)
    }
    [section] = adapters.adapters_table(regrets, {}).sections
    assert cells(section)[adapters.NEAREST][3] == "+0.1000 [+0.1000, +0.1000]"
    assert cells(section)[adapters.FULL][2:] == ("0.5000 [-0.4937, 1.4937]", "")
    assert cells(section)["before"][:2] == ("0", "")


# Distillation.


@pytest.fixture(scope="module")
def users():
    config = SimulatorConfig(population="switches", min_events=8, max_events=10, responses=0, teacher=True)
    return population({"train": 16}, config)["train"]


def test_the_draw_keeps_as_many_rows_marks_them_and_prefers_none(users):
    found, again, other = (distillation.draw(users, 50, seed) for seed in (0, 0, 1))
    assert len(rows(found)) == len(rows(other)) == 50
    assert found == again and rows(found) != rows(other)
    assert set(rows(found)) < set(rows(users))
    assert already_curated(found).startswith(f"found {len(found)} of {len(found)} streams curated already")
    assert found[0].curated == f"50 of {len(rows(users))} rows drawn at random"
    assert rows(distillation.draw(users, len(rows(users)), 0)) == rows(users)
    with pytest.raises(ValueError, match="count: found"):
        distillation.draw(users, len(rows(users)) + 1, 0)
    counts = dict.fromkeys(rows(users[:2]), 0)
    for seed in range(200):
        for row in rows(distillation.draw(users[:2], len(counts) // 2, seed)):
            counts[row] += 1
    # Each count is binomial of 200 draws with probability of about 1/2; 5 standard deviations are 35.
    assert max(abs(count - 100) for count in counts.values()) < 36


def test_judges_err_with_their_own_seeds_and_wrong_labels_are_counted(users):
    good, bad = (distillation.labelled(users, users, distillation.TEACHERS[name]) for name in ("good", "bad"))
    first, second, other = (distillation.judged(*of) for of in ((good, users, 0), (bad, users, 0), (good, users, 1)))
    answers = [
        [(s.y_need, s.candidates[0].y_accept) for one in streams for s in one.steps]
        for streams in (first, second, users)
    ]
    assert answers[0] == answers[1], "the teacher's errors do not reach the judges"
    assert [s.votes for one in other for s in one.steps] != [s.votes for one in first for s in one.steps]
    votes = np.array([s.votes for one in first for s in one.steps])
    assert len(np.unique(votes, axis=1).T) == 3, "no two judges agree everywhere"
    half = [keep_candidates(stream, lambda _: True) for stream in users[:8]]
    np.testing.assert_array_equal(distillation.facts(half, users), (len(rows(half)), 0, 0))
    wrong = (np.array(answers[0]) != np.array(answers[2])).mean(0)
    np.testing.assert_allclose(distillation.facts(first, users), (len(rows(users)), *wrong))
    assert 0 < wrong[0] < 0.15


def test_students_are_compared_in_pairs_and_with_the_best_teachers():
    def systems(first):
        return distillation.systems({"curated": first, "all": made, "random": made, "teacher": made}, POINT)

    def knowing(scores):
        true = {
            f"p_{signal}_{way}": getattr(scores, f"p_{signal}_true") for signal in SIGNALS for way in ("fast", "slow")
        }
        return Scores.from_columns(scores.columns() | true)

    made = [scores_of(seed) for seed in range(3)]
    named = systems([knowing(scores) for scores in made])
    change = named["curated, slow on margin"].of("expected") - named["random, slow on margin"].of("expected")
    assert change.mean < 0
    row = cells(distillation.difference_table(named).sections[1])["curated − random"]
    assert row[1] == change.over_seeds(sign="+") and row[2] == change.by_seed()
    assert cells(distillation.difference_table(named).sections[0])["random − all"][0] == "+0.000"
    students = cells(distillation.student_table(named, POINT).sections[0])
    assert float(students["curated, fast only"][2]) > float(students["all, fast only"][2])
    good, bad = distillation.curve_table({"good": named, "bad": systems(made)}, POINT).sections[0].rows
    assert good.name == "blur 0.25, bias 0, 0 % of fields, 0 % of responses"
    assert good.cells[-1] == "" and bad.cells[-1].startswith("+") and float(bad.cells[3]) > float(good.cells[3])


@pytest.mark.slow
def test_the_study_is_what_direct_calls_give_and_repeats_nothing(tmp_path, monkeypatch):
    small = {"data.train_streams": 24, "data.calibration_streams": 12, "data.test_streams": 12}
    base = laid_over(distillation.BASE, {**small, "training.steps": 2, "writing.field_tokens": 2})
    base = dataclasses.replace(
        base, student=StudentConfig(hidden_dim=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32)
    )
    compared = dataclasses.replace(distillation.COMPARED, base=base, seeds=(5,))
    both = {name: compared.variants[name] for name in ("curated", "teacher")}
    curve = {"fair": Comparison(base, both, seeds=(5,))}
    store = Store(tmp_path)
    found = distillation.tables(compared, curve, store)
    folder, point = distillation.prepare(of_seed(base, 5), "fair", store), base.decision
    streams = {arm: read_streams(folder / f"{arm}.jsonl") for arm in distillation.ARMS}
    curated = curate(streams["all"], base.pathway)
    assert streams["curated"] == list(curated.streams)
    counts = {arm: len(rows(streams[arm])) for arm in distillation.ARMS}
    assert counts["curated"] == counts["random"] == curated.total("kept") < counts["all"]
    students = cells(found[1].sections[0])
    for arm in distillation.ARMS:
        [place] = tmp_path.glob(f"distilled-{arm}-*")
        config = Workdir(epath.Path(place)).load_config()
        assert (config.training.seed, config.training.steps) == (5, 2)
        assert config.data.train_source == str((folder / f"{arm}.jsonl").resolve())
        scores = read_scores(place / "scores_slow.parquet")
        evaluation = evaluate(scores, calibrate(scores), point)
        for words, policy in (("fast only", "dynamic"), ("slow on margin", "slow_on_margin")):
            cost = evaluation.policy(policy, "calibrated").realised_cost
            assert float(students[f"{arm}, {words}"][0].split()[0]) == pytest.approx(cost, abs=5.1e-4)
    monkeypatch.setattr("prism_jax.runs.store.train_run", None)  # a call would fail
    monkeypatch.setattr(distillation, "population", None)
    assert distillation.tables(compared, curve, store) == found
