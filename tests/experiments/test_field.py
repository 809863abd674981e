"""The field's table: a source and a baseline are a line each, and nothing that is scored sees its own labels."""

import dataclasses
import json
import math

import numpy as np
import pytest
from etils import epath
from threadpoolctl import threadpool_limits

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.experiments.field import command, material, measures, registry, running, tables
from prism_jax.experiments.field.command import given, read_given
from prism_jax.experiments.field.interface import Baseline, Fold, Run, rows_of_streams, sampled_steps
from prism_jax.experiments.field.tfidf import INNER, STRENGTHS, outer_folds, score_words_nested
from prism_jax.report.table import Table
from prism_jax.scores import Scores, ScoresError
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_steps, without_answers
from prism_jax.streams.published.content import Published
from prism_jax.streams.published.table import SOURCES, Source

CONTEXTAGENT = epath.Path("../shared/contextagent")


def moments(count: int = 24) -> list[Stream]:
    """Streams of one moment each; those who ask for help want it, but for every seventh."""
    made = []
    for number in range(count):
        asks = number % 2 == 0
        accepted = float(asks != (number % 7 == 0))
        text = f"the user {'asks for help with a recipe' if asks else 'watches a film'} {number}"
        step = Step(event=0, candidates=(Candidate(y_accept=accepted),))
        made.append(Stream(id=f"m{number:02d}", events=(Event(time=0.0, text=text),), steps=(step,), domain="home"))
    return made


def asks(fold, run):
    """A baseline that reads one word and is not fitted."""
    p = [0.8 if "help" in stream.events[0].text else 0.2 for stream in fold.test]
    return Scores.from_rows(rows_of_streams(fold.test, None, p, split="test", fold=fold.number))


ASKS = Baseline("asks", "asks for help", asks, fitted=False)


@pytest.fixture
def one_more(monkeypatch):
    """A source and a baseline beside ours, a line each."""
    reader = lambda place, **settings: Published(moments())  # noqa: E731
    monkeypatch.setitem(SOURCES, "kitchen", Source("moments", "a file", "none", "nowhere", reader))
    monkeypatch.setitem(registry.BASELINES, "asks", ASKS)


def tables_of(names, source, run):
    made = command.study(command.chosen(names, run), [source], run, resamples=200)
    return [table for table in made if isinstance(table, Table)]


def test_a_new_source_and_a_new_baseline_are_a_line_each_and_are_scored_once(one_more, tmp_path, monkeypatch):
    found, run = material.read("kitchen", "anywhere"), Run(epath.Path(tmp_path))
    tables = tables_of(["constant", "domain", "asks"], found, run)
    titles = [table.title for table in tables]
    assert titles[:3] == ["Which baseline fits which source", "kitchen: signals", "kitchen: what decisions cost"]
    signals = {row.name: row.cells for row in tables[1].sections[0].rows}
    assert signals["asks for help"][0] == "24" and signals["asks for help"][2].startswith("0.8")
    costs = {row.name: row.cells for section in tables[2].sections for row in section.rows if "1:1" in section.title}
    assert costs["asks for help"][2].startswith(f"{4 / 24:.3f}")
    assert costs["asks for help"][3].startswith("−")
    assert "kitchen: asks for help, as it is" in [section.title for section in tables[3].sections]
    monkeypatch.setattr(running, "write_scores", lambda *args: pytest.fail("scored a second time"))
    again = tables_of(["constant", "domain", "asks"], found, run)
    assert [table.to_csv() for table in tables] == [table.to_csv() for table in again]


def test_a_baseline_sees_no_label_of_what_it_is_tested_on():
    source = material.Material("kitchen", tuple(moments()))
    for fold in source.folds(3):
        assert all(offer.y_accept is None for stream in fold.test for step in stream.steps for offer in step.candidates)
        assert not {stream.id for stream in fold.test} & {stream.id for stream in fold.train}
    tested = [name for fold in source.folds(3) for name in source.tested(fold)]
    assert sorted(tested) == list(source.units)


def test_the_publishers_test_part_is_tested_alone_where_both_parts_are_there(tmp_path):
    streams = tuple(moments())
    of_number = {stream.id: ("train", "test", "neither")[number % 3] for number, stream in enumerate(streams)}
    split = {name: part for name, part in of_number.items() if part != "neither"}
    tested = sorted(name for name, part in split.items() if part == "test")
    source = material.Material("kitchen", streams, split=split)
    (fold,) = source.folds()
    assert [stream.id for stream in fold.test] == tested
    assert sorted(stream.id for stream in fold.train) == sorted({*split} - {*tested})
    assert (
        len(source.folds(4)) == 4 and len(dataclasses.replace(source, split=dict.fromkeys(split, "train")).folds()) > 1
    )
    always = Baseline(
        "always", "always", decide=lambda fold, run, ratio: {(one.id, 0): 0 for one in fold.test}, fitted=False
    )
    run = Run(epath.Path(tmp_path))
    for baseline in (registry.BASELINES["tfidf"], ASKS, always):
        cell = running.cell_of(baseline, source, run, CalibrationConfig("penalised"), None, run.cache / baseline.name)
        assert all(sorted(decided.steps.stream.tolist()) == tested for decided in cell.decided.values())


def test_rates_are_those_of_the_training_streams_and_those_of_domains_are_shrunk_towards_them(tmp_path):
    def stream(name, domain, *accepted):
        steps = tuple(Step(event=at, candidates=(Candidate(y_accept=y),)) for at, y in enumerate(accepted))
        events = tuple(Event(time=float(at), text="a user does something") for at in range(len(accepted)))
        return Stream(id=name, events=events, steps=steps, domain=domain)

    train = [stream("a", "code", 1.0, 1.0, 0.0), stream("b", "life", 0.0)]
    fold = Fold(
        0, train, [without_answers(stream(name, domain, 0.0)) for name, domain in (("c", "code"), ("d", "other"))]
    )
    constant, domain = (
        registry.BASELINES[name].score(fold, Run(epath.Path(tmp_path))) for name in ("constant", "domain")
    )
    assert constant.p_accept_fast.tolist() == [0.5, 0.5] and not constant.has_need
    np.testing.assert_allclose(domain.p_accept_fast, [(2 + 6 * 0.5) / 9, 0.5])


def test_a_sample_of_steps_is_that_of_its_seed_and_a_baseline_gives_one_thing(tmp_path):
    run = Run(epath.Path(tmp_path), steps=2, seed=1)
    assert (
        sampled_steps(moments(), run)
        == sampled_steps(moments(), run)
        != sampled_steps(moments(), dataclasses.replace(run, seed=2))
    )
    assert sampled_steps(moments(3), Run(epath.Path(tmp_path))) == [(0, 0), (1, 0), (2, 0)]
    told = Baseline("told", "told its costs", decide=lambda fold, run, ratio: {})
    assert (registry.BASELINES["constant"].gives, told.gives) == ("probabilities", "decisions")
    with pytest.raises(ValueError, match="expected one of them"):
        Baseline("none", "neither")


def test_decisions_are_counted_at_the_steps_that_were_decided(tmp_path):
    source, run = material.Material("kitchen", tuple(moments())), Run(epath.Path(tmp_path), steps=10)

    def decide(fold, run, ratio):
        return {
            (fold.test[place].id, number): 0 if "help" in fold.test[place].events[0].text else None
            for place, number in sampled_steps(fold.test, run)
        }

    baseline = Baseline("told", "told its costs", decide=decide, fitted=False)
    cell = running.cell_of(baseline, source, run, CalibrationConfig("penalised"), None, epath.Path(tmp_path))
    decided = cell.decided[2.0]
    truth = {stream.id: stream.steps[0].candidates[0].y_accept for stream in source.streams}
    wanted = {stream.id: "help" in stream.events[0].text for stream in source.streams}
    assert len(decided.steps) == 10
    costs = measures.realised(decided, 2.0)
    for stream, cost in zip(decided.steps.stream.tolist(), costs.tolist(), strict=True):
        assert cost == (1 - truth[stream] if wanted[stream] else 2 * truth[stream])


def test_labels_of_a_new_source_come_from_the_other_half_of_its_streams():
    source = material.Material("kitchen", tuple(moments()))
    scores = source.labelled(asks(source.whole(), None))
    plain, moved = (measures.few_labels(scores, labels, CalibrationConfig("penalised"), 0) for labels in (0, 20))
    assert [fold.calibration.accept_fast.map.temperature for fold in plain] == [1.0, 1.0]
    for number, fold in enumerate(moved):
        other = fold.scores.take(fold.scores.split == "calibration")
        changed = fold.scores.columns() | {"y_accept": np.where(fold.scores.split == "test", 1.0, fold.scores.y_accept)}
        again = measures.few_labels(Scores.from_columns(changed), 20, CalibrationConfig("penalised"), 0)[number]
        assert len(other) == 12 and again.calibration.accept_fast.map == fold.calibration.accept_fast.map
    baseline = Baseline("asks", "asks for help", asks, fitted=False)
    table = tables.transfer([running.Moved(baseline, "", "kitchen", {0: plain, 20: moved})], 100)
    assert [row.name for row in table.sections[0].rows] == ["0 labels", "20 labels, 12 found"]


def test_anybody_s_scores_are_a_baseline(tmp_path):
    source, run = material.Material("kitchen", tuple(moments())), Run(epath.Path(tmp_path))
    rows = [
        {"stream": stream.id, "step": 0, "p_accept_fast": 0.8 if "help" in stream.events[0].text else 0.2}
        for stream in source.streams
    ]
    mine = given("mine", Scores.from_rows(rows))
    cell = running.cell_of(mine, source, run, CalibrationConfig("penalised"), 4, epath.Path(tmp_path))
    assert [len(fold.scores) for fold in cell.folds] == [24] * 4
    assert running.misfit(given("mine", Scores.from_rows(rows[:3])), source) == ""
    with pytest.raises(ScoresError, match="found no row for stream 'm03', step 0, candidate 0"):
        given("mine", Scores.from_rows(rows[:3])).score(source.whole(), run)
    other = Scores.from_rows([{**rows[0], "stream": "elsewhere"}])
    assert running.misfit(given("mine", other), source) == "other streams"
    with pytest.raises(ScoresError, match="found the votes of another offer"):
        source.labelled(Scores.from_rows([{**row, "votes": [False]} for row in rows]))
    for entry in ("mine", "=file", "tfidf=file"):
        with pytest.raises(ValueError, match="expected NAME=FILE with a new name"):
            read_given([entry], registry.BASELINES)


def test_tfidf_learns_informative_words_and_does_without_texts_that_have_none():
    pytest.importorskip("sklearn")
    source = material.Material("kitchen", tuple(moments(40)))
    (fold,) = source.folds(4)[:1]
    scores, chosen = score_words_nested(fold.train, fold.test, fold.number)
    assert set(chosen) == {"accept"} and not scores.has_need
    assert {split: int((scores.split == split).sum()) for split in ("calibration", "test")} == {
        "calibration": len(fold.train),
        "test": len(fold.test),
    }
    helped = np.array(["help" in stream.events[0].text for stream in fold.test])
    p = {stream: value for stream, value in zip(scores.stream.tolist(), scores.p_accept_fast.tolist(), strict=True)}
    own = np.array([p[stream.id] for stream in fold.test])
    assert own[helped].min() > own[~helped].max()


def test_noise_is_measured_between_a_stream_and_its_twin(tmp_path):
    def watched(name, *texts):
        events = tuple(Event(time=float(at), text=text) for at, text in enumerate(texts))
        steps = tuple(Step(event=at) for at, text in enumerate(texts) if text != "an advert")
        return Stream(id=name, events=events, steps=steps, persona=name.partition("_")[0])

    plain = watched("p", "the user asks for help", "the user rests")
    target = material.Material("phones", (plain, watched("p_noise", "an advert", "an advert", *_texts(plain))))
    source, run = material.Material("kitchen", tuple(moments())), Run(epath.Path(tmp_path))
    assert running.misfit(registry.BASELINES["constant"], target) == "no labels"
    newest = Baseline("newest", "reads the first event", _by_first_event, fitted=False)
    (found,) = running.flips([newest], [source, target], run, CalibrationConfig("penalised"), epath.Path(tmp_path))
    assert (found.fitted_on, found.source) == ("", "phones")
    assert found.by_ratio[1.0].plain.tolist() == [1.0, 1.0] and found.by_ratio[1.0].noisy.tolist() == [0.0, 0.0]
    table = tables.noise([found], 100)
    assert table.sections[0].rows[2].cells == ("100.0", "0.0", "1.000")
    assert tables.noise([], 100) is None
    baselines = [registry.BASELINES["constant"]]
    (rates,) = running.flips(baselines, [source, target], run, CalibrationConfig(), epath.Path(tmp_path))
    assert rates.fitted_on == "kitchen" and (rates.by_ratio[1.0].plain == rates.by_ratio[1.0].noisy).all()


def _texts(stream):
    return [event.text for event in stream.events]


def _by_first_event(fold, run):
    """Calibrated already, so that no labels of the source are needed."""
    p = [0.9 if "help" in stream.events[0].text else 0.1 for stream in fold.test for _ in stream.steps]
    return Scores.from_rows(rows_of_streams(fold.test, None, p, split="test", fold=fold.number, calibrated=True))


def test_costs_count_need_where_a_baseline_does_not_score_it(tmp_path):
    streams = [
        map_steps(stream, lambda step, number=number: dataclasses.replace(step, y_need=float(number % 3 == 0)))
        for number, stream in enumerate(moments())
    ]
    source, run = material.Material("kitchen", tuple(streams)), Run(epath.Path(tmp_path))
    cell = running.cell_of(ASKS, source, run, CalibrationConfig("penalised"), None, epath.Path(tmp_path))
    assert not cell.folds[0].scores.has_need
    never = measures.realised(measures.constants(cell.decided[1.0].steps)["never"], 1.0)
    missed = [step.y_need * step.candidates[0].y_accept for stream in streams for step in stream.steps]
    assert never.sum() == sum(missed) < sum(offer.y_accept for s in streams for t in s.steps for offer in t.candidates)


def test_words_of_an_offer_tell_who_accepts(tmp_path):
    pytest.importorskip("sklearn")

    def offered(number):
        steps = tuple(
            Step(event=0, candidates=(Candidate(text=f"{word} plan {number}", y_accept=float(word == "good")),))
            for word in ("good", "bad")
        )[number % 2 :][:1]
        return Stream(id=f"o{number:02d}", events=(Event(time=0.0, text="the user works"),), steps=steps)

    baseline, run = registry.BASELINES["offers"], Run(epath.Path(tmp_path))
    source = material.Material("plans", tuple(map(offered, range(20))))
    scores = source.labelled(baseline.score(source.folds(2)[0], run))
    assert scores.p_accept_fast[scores.y_accept == 1].min() > scores.p_accept_fast[scores.y_accept == 0].max()
    assert running.misfit(baseline, material.Material("kitchen", tuple(moments()))) == "no texts of offers"


def test_a_table_of_methods_has_their_differences():
    source = material.Material("kitchen", tuple(moments()))
    scores = source.labelled(asks(source.whole(), None))
    ranked = measures.signal_of([measures.CalibratedFold(scores, measures.as_it_is())], "accept")
    table = tables.measure({"a": ranked, "b": ranked}, "Acceptance", 100)
    assert [row.name for row in table.sections[0].rows] == ["a", "b", "b minus a"]
    assert table.sections[0].rows[2].cells[0] == "0.000"  # nothing varies between streams: no interval of width 0


@pytest.fixture
def log(tmp_path):
    """People who mostly accept, and people who mostly do not."""
    path = epath.Path(tmp_path) / "answers.csv"
    rng = np.random.default_rng(0)
    rows = [
        f"u{person},{time},{rng.random():.3f},{int(rng.random() < (0.9 if person % 2 else 0.1))}"
        for time in range(20)
        for person in range(8)
    ]
    path.write_text("\n".join(["person,time,score,accepted", *rows]))
    roles = command.parse_columns("person=person,time=time,score=score,accepted=accepted")
    return material.read("log", str(path), roles)


def test_words_have_nothing_to_read_in_a_log_of_other_columns(log):
    assert running.misfit(registry.BASELINES["tfidf"], log) == "no words, no numbers"


@pytest.mark.slow
def test_a_person_s_rate_ranks_the_answers_of_people_who_differ(log, tmp_path):
    run, config = Run(epath.Path(tmp_path)), CalibrationConfig("penalised")
    assert log.units == tuple(f"p{number}" for number in range(1, 9))
    person, constant, own = (
        running.cell_of(registry.BASELINES[name], log, run, config, None, epath.Path(tmp_path))
        for name in ("person", "constant", "own")
    )
    assert len(person.folds) == len(own.folds) == 8
    costs = [measures.cost_of(cell.decided[1.0], 1.0, 200).cost.value for cell in (person, constant)]
    assert costs[0] < costs[1] - 0.1
    steps = person.decided[1.0].steps
    first = steps.p_accept[steps.step == 0]  # before any answer of theirs was seen
    assert np.ptp(first) < 0.3 and np.ptp(steps.p_accept) > 0.6
    signals = tables.quality([person], 200)
    assert signals.columns[3].label == "AUROC, within people" and "intervals over 8 people" in signals.note


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        ("log", "answers.csv", "answers.csv: found no known layout .*, expected --columns"),
        ("log", "copilot.parquet", "copilot.parquet: no such file, expected a log of answers"),
        ("log", "", "sources: found log, expected log=PATH"),
        ("contextagent", "", "sources: found contextagent, expected contextagent=PATH"),
        ("simulator", "streams", "sources: found simulator=streams, expected simulator alone"),
        ("elsewhere", "streams", "sources: found 'elsewhere', expected one of"),
    ],
)
def test_an_entry_that_names_no_readable_source_is_one_line(name, place, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    epath.Path("answers.csv").write_text("person,accepted\na,1\nb,0\n")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        material.read(name, place)


def test_what_a_baseline_lacks_is_said_before_anything_runs(tmp_path):
    run = Run(epath.Path(tmp_path))
    for names, message in (
        (["tfidf", "states"], "baselines: found 'states' without --weights, expected both"),
        (["stated"], "baselines: found 'stated' without --config, expected both"),
        (["constant", "tfidff"], "baselines: found 'tfidff', expected some of constant, "),
    ):
        with pytest.raises(ValueError, match=message):
            command.chosen(names, run)
    source = material.Material("kitchen", tuple(moments()))
    made = command.study(command.chosen(["person"], run), [source], run)
    assert next(made).sections[0].rows[0].cells == ("probabilities", "takes logs")
    with pytest.raises(ValueError, match="baselines: found none that fits a source"):
        next(made)
    with pytest.raises(ValueError, match="sources: found kitchen more than once"):
        next(command.study([], [source, source], run))


def test_settings_reach_the_reader_of_a_source(tmp_path):
    folder = _miniature(epath.Path(tmp_path) / "made")
    path = folder / "data" / "cab" / "cab_train.json"
    rows = json.loads(path.read_text())
    rows["0"]["Proactive index"] = "medium"
    path.write_text(json.dumps(rows))
    for medium, label in (("unlabelled", None), ("true", 1.0)):
        source = material.read("contextagent", str(folder), medium=medium)
        by_id = {stream.id: stream for stream in source.streams}
        assert by_id["cab_train:0"].steps[0].candidates[0].y_accept == label


@pytest.mark.slow
@pytest.mark.parametrize("made", [True, False])
def test_tfidf_is_the_regression_that_scikit_learn_fits(made, tmp_path):
    pytest.importorskip("sklearn")
    if not made and not CONTEXTAGENT.is_dir():
        pytest.skip(f"{CONTEXTAGENT} is not there")
    folder = CONTEXTAGENT if not made else _miniature(epath.Path(tmp_path) / "made")
    source = material.read("contextagent", str(folder))
    fold = source.folds(5)[0]
    scores = registry.BASELINES["tfidf"].score(fold, Run(epath.Path(tmp_path)))
    ours = dict(zip(scores.stream.tolist(), scores.p_accept_fast.tolist(), strict=True))
    theirs = _by_scikit_learn(fold)
    assert len(theirs) == len(fold.test) > 4
    np.testing.assert_allclose([ours[name] for name in theirs], list(theirs.values()), atol=1e-6)


def _by_scikit_learn(fold) -> dict[str, float]:
    """Grid search over C by log loss on the same inner folds, refitted on all training rows."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, PredefinedSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    train = [stream for stream in fold.train if stream.steps[0].candidates[0].y_accept is not None]
    inner = {stream.id: number for number, (_, held) in enumerate(outer_folds(fold.train, INNER)) for stream in held}
    texts, lengths = slice(0, 1), slice(1, 2)

    def table(streams):
        return np.array([[stream.events[0].text, math.log1p(len(stream.events[0].text))] for stream in streams], object)

    words = make_pipeline(FunctionTransformer(np.ravel), TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True))
    columns = ColumnTransformer([("words", words, texts), ("length", StandardScaler(), lengths)])
    search = GridSearchCV(
        make_pipeline(columns, LogisticRegression(max_iter=1000)),
        {"logisticregression__C": STRENGTHS},
        scoring="neg_log_loss",
        cv=PredefinedSplit([inner[stream.id] for stream in train]),
    )
    with threadpool_limits(1):
        search.fit(table(train), [stream.steps[0].candidates[0].y_accept for stream in train])
    return dict(zip([stream.id for stream in fold.test], search.predict_proba(table(fold.test))[:, 1], strict=True))


def _miniature(folder: epath.Path) -> epath.Path:
    """Made-up rows in the publisher's layout."""
    rows = {
        str(number): {
            "Category": "Cooking" if number % 3 else "Travel",
            "Context information": f"The user {'looks for a recipe' if number % 2 else 'rests'} on day {number}",
            "Proactive index": str(bool(number % 2) != (number % 5 == 0)).lower(),
        }
        for number in range(60)
    }
    (folder / "data" / "cab").mkdir(parents=True)
    (folder / "data" / "cab" / "cab_train.json").write_text(json.dumps(rows))
    return folder
