"""`calibrate`: asks an engine or a decision model on labels, and writes the gate that it needs."""

import dataclasses
import importlib.util
import itertools
import json
import re
import types

import numpy as np
import pytest
from engines import CONTEXT, Fake, export
from test_mains import run

from prism_jax.agent.engine_reader import EngineReader
from prism_jax.agent.exported import read_exported, with_gate
from prism_jax.agent.fitted import Labelled, check, check_model, read_fitted, read_labelled
from prism_jax.agent.loading import load_decisions, load_engine
from prism_jax.agent.records import NOT_KEPT
from prism_jax.commands import calibrate, calibrating
from prism_jax.decision.calibration import Platt, Temperature
from prism_jax.gate import Gate
from prism_jax.remote.cache import Cache
from prism_jax.scores import Scores, read_scores
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import write_streams

MISSING = importlib.util.find_spec("openai") is None  # to load it takes a second
pytestmark = pytest.mark.skipif(MISSING, reason="engines are asked by the client of the extra `remote`")
OFFERS = (Candidate(text="Look at it?"), Candidate(text="Write a summary?"))


def unlabelled(count, length=6):
    """Streams whose every second event is a step, with one offer or two."""
    return [
        Stream(
            id=f"s{number}",
            domain="coding",
            events=tuple(
                Event(time=60.0 * place, text=f"{number} {place}: the parser fails") for place in range(length)
            ),
            steps=tuple(Step(event=place, candidates=OFFERS[: 1 + number % 2]) for place in range(1, length, 2)),
        )
        for number in range(count)
    ]


def of_one_step(count):
    event, step = Event(time=0.0, text="x"), Step(event=0, candidates=OFFERS)
    return [Stream(id=f"s{n}", domain="coding", events=(event,), steps=(step,)) for n in range(count)]


def labelled(streams, log_odds, scale=0.4, bias=1.5, seed=0):
    """Labels for which the model is too sure: sigmoid(scale z + bias) is true where it says sigmoid(z)."""
    rng = np.random.default_rng(seed)

    def draw(z):
        return float(rng.random() < 1 / (1 + np.exp(-(scale * z + bias))))

    def step(stream, number):
        need, *accept = log_odds[stream.id, number]
        old = stream.steps[number]
        offers = [dataclasses.replace(one, y_accept=draw(z)) for one, z in zip(old.candidates, accept, strict=True)]
        return dataclasses.replace(old, y_need=draw(need), candidates=tuple(offers))

    return [
        dataclasses.replace(stream, steps=tuple(step(stream, number) for number in range(len(stream.steps))))
        for stream in streams
    ]


@pytest.fixture(scope="module")
def folder(template, tmp_path_factory):
    return export(tmp_path_factory.mktemp("export") / "model", template)


@pytest.fixture
def engine(template):
    fake = Fake("sglang", template.tokenizer)
    yield fake
    fake.close()


@pytest.fixture
def fake():
    """A decision model."""
    fake = Fake("decisions", None)
    yield fake
    fake.close()


def reader_of(folder, fake):
    return load_engine(folder, read_exported(folder), fake.name, context=CONTEXT, report=lambda line: None)


def test_an_engine_is_calibrated_where_it_serves(folder, engine, tmp_path):
    reader, streams = reader_of(folder, engine), unlabelled(60)
    assert isinstance(reader, EngineReader)
    write_streams(tmp_path / "labels.jsonl", labelled(streams, read_labelled(reader, streams).log_odds))
    reader.close()
    files = f"--labels={tmp_path / 'labels.jsonl'}", f"--out={tmp_path / 'gate.json'}"
    options = f"--model={folder}", f"--engine={engine.name}", f"--context={CONTEXT}", "--c_fa=1", "--c_fn=2"
    done = run("calibrate", *files, *options, f"--scores_out={tmp_path / 'scores.parquet'}")
    assert done.returncode == 0, done.stderr
    gate = Gate.load(tmp_path / "gate.json")
    assert isinstance(gate.accept, Platt) and (gate.point.c_fa, gate.point.c_fn) == (1.0, 2.0)
    for fitted in (gate.need, gate.accept):
        assert fitted.scale == pytest.approx(0.4, abs=0.15) and fitted.bias == pytest.approx(1.5, abs=0.5)
    assert "Cost per judged step" in done.stdout and "calibration saves" in done.stdout
    assert len(read_scores(tmp_path / "scores.parquet")) == 60 * 3 + 30 * 3
    done = run("evaluate", f"--scores={tmp_path / 'scores.parquet'}", f"--workdir={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr  # each fold calibrated on the others
    again = run("calibrate", *files, *options)
    assert again.returncode == 1 and "gate.json: found something there" in again.stderr


def test_a_decision_model_is_calibrated_from_the_first_day(fake, tmp_path):
    streams = unlabelled(12)
    with Cache(tmp_path / "a.sqlite", 1.0) as cache:
        reader, _ = load_decisions(fake.url, "m", Gate.at_costs(c_fa=1.0, c_fn=2.0), cache=cache)
        found = read_labelled(reader, streams)
        reader.close()
    write_streams(tmp_path / "labels.jsonl", labelled(streams, found.log_odds))
    fake.faults = ["refusal"]
    command = f"--labels={tmp_path / 'labels.jsonl'}", f"--out={tmp_path / 'gate.json'}", f"--decisions={fake.url}"
    done = run("calibrate", *command, "--decision_model=m", f"--answers={tmp_path / 'b.sqlite'}")
    assert done.returncode == 0, done.stderr
    assert "steps without an answer, which are left out: 1 (the decision model refuses the question" in done.stderr
    assert "few labels (35 of p_need" in done.stdout
    assert 0.4 < Gate.load(tmp_path / "gate.json").accept.scale < 1


def test_without_labels_probabilities_stay_as_they_are_and_nobody_is_asked(folder, engine, tmp_path):
    write_streams(tmp_path / "labels.jsonl", unlabelled(2))
    files = f"--labels={tmp_path / 'labels.jsonl'}", f"--out={tmp_path / 'gate.json'}"
    done = run("calibrate", *files, f"--model={folder}", f"--engine={engine.name}", "--c_fn=3")
    assert done.returncode == 0 and "found no label" in done.stdout and not engine.asked
    gate = Gate.load(tmp_path / "gate.json")
    assert (gate.need, gate.accept) == (Temperature(1.3), Temperature(0.8))  # the export's own
    assert (gate.point.c_fa, gate.point.c_fn) == (1.0, 3.0)


def test_labels_may_stand_in_several_files(tmp_path):
    streams = unlabelled(3)
    write_streams(tmp_path / "a.jsonl", streams[:2])
    write_streams(tmp_path / "b.jsonl", streams[2:])
    assert calibrating.read_labels(str(tmp_path)) == calibrating.read_labels(str(tmp_path / "*.jsonl")) == (streams, {})
    write_streams(tmp_path / "c.jsonl", streams[:1])
    with pytest.raises(ValueError, match=r"c\.jsonl: found the stream 's0' of another file"):
        calibrating.read_labels(str(tmp_path))


@pytest.mark.slow
def test_records_with_outcomes_are_labels(folder, engine, tmp_path):
    lines = [{"stream": f"s{n}", "time": 1.0, "text": f"{n}: the parser fails"} for n in range(12)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = tmp_path / "records.jsonl"
    options = f"--model={folder}", f"--engine={engine.name}", f"--context={CONTEXT}"
    agent = (*options, f"--input={tmp_path / 'in.jsonl'}", f"--records={records}", f"--state={tmp_path / 'state'}")
    agent += ("--keep_texts", "--policy=always")
    assert run("agent", *agent).returncode == 0
    offers = [record["offer"] for record in map(json.loads, records.read_text().splitlines())]
    answers = [
        {"stream": f"s{n}", "offer": offer, "outcome": ("accepted", "dismissed")[n % 2], "time": 2.0}
        for n, offer in enumerate(offers)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, *answers]))
    assert run("agent", *agent).returncode == 0
    done = run("calibrate", *options, f"--labels={records}", f"--out={tmp_path / 'gate.json'}")
    assert done.returncode == 0, done.stderr
    assert "few labels (12 of p_accept)" in done.stdout
    gate = Gate.load(tmp_path / "gate.json")
    assert gate.need == Temperature(1.3) and isinstance(gate.accept, Platt)
    assert "no cost is known" in done.stdout  # of silence: nobody judged need
    records.write_text(re.sub(r'"text": ?"[^"]*"', f'"text": "{NOT_KEPT}"', records.read_text()))
    done = run("calibrate", *options, f"--labels={records}", f"--out={tmp_path / 'other.json'}")
    assert done.returncode == 1 and "events without a text, expected records of --keep_texts" in done.stderr


def test_the_distance_to_our_own_reader_is_that_of_the_log_odds():
    engine, own = (
        {("a", 0): (1.0, 0.0), ("a", 1): (3.0, -0.2, -2.0)},
        {("a", 0): (1.2, 0.0), ("a", 1): (3.0, 2.0, -2.0)},
    )
    gate = Gate.at_costs(c_fa=1.0, c_fn=1.0)  # p_accept from 1 / (1 + p_need) on
    events = tuple(Event(time=float(place), text="x") for place in range(2))
    steps = tuple(Step(event=place, candidates=OFFERS[: 1 + place]) for place in range(2))
    readings = (Labelled([], found, {}) for found in (engine, own))
    said = calibrating._distance(
        *readings, gate, [Stream(id="a", domain="coding", events=events, steps=steps)], "our own"
    )
    assert said.startswith("log-odds are 0.48 away from our own on average and 2.2 at most; 1 of 2 decisions")


OPTIONS = {
    **dict.fromkeys(("scores_out", "model", "engine", "decisions", "decision_model", "questions", "window", "answers")),
    **dict.fromkeys(("prompt_cache", "budget", "input_price", "output_price", "key", "deadline", "context", "compare")),
    **dict.fromkeys(("expect_digest", "policy", "compilation_cache", "check")),
    **{"redact": True, "c_fa": 1.0, "c_fn": 2.0, "calibrator": "platt", "identity_rows": 20.0},
}

OF_THE_GATE = dict.fromkeys(("c_fa", "c_fn", "calibrator", "identity_rows"))


def calibrated(folder, monkeypatch, **options):
    """Runs the command in this process on the labels of a folder."""
    given = {name: options.pop(name, name) for name in ("labels", "out")}
    paths = {name: value and str(folder / value) for name, value in given.items()}
    own = {name: str(folder / options.pop(name)) for name in ("scores_out", "answers", "questions") if name in options}
    flags = types.SimpleNamespace(FLAGS=types.SimpleNamespace(flag_values_dict=lambda: OPTIONS | paths | own | options))
    monkeypatch.setattr(calibrate, "flags", flags)
    calibrate.main()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores_out": "out"}, "--scores_out: found .*out, the file of --out, expected another one"),
        ({"scores_out": "s.csv"}, r"s\.csv: found the suffix '\.csv', expected \.parquet or \.jsonl"),
        ({"out": "none/gate.json"}, r"none/gate\.json: found no folder .*none, expected an existing one"),
        ({"scores_out": "none/s.jsonl"}, r"none/s\.jsonl: found no folder .*none, expected an existing one"),
        ({"answers": "out"}, "--answers: found .*out, the file of --out, expected another one"),
        ({"scores_out": "a.jsonl", "answers": "a.jsonl"}, "--answers: found .*a.jsonl, the file of --scores_out"),
        ({"out": "labels"}, "--out: found .*labels, the file of --labels, expected another one"),
        ({"answers": "labels"}, "--answers: found .*labels, the file of --labels, expected another one"),
        ({"out": "link"}, "link: found a link to nothing there, expected a path that does not exist yet"),
        ({"out": "folder"}, "folder: found something there, expected a path that does not exist yet"),
    ],
)
def test_what_could_not_be_written_is_an_error_before_anything_is_asked(fake, tmp_path, monkeypatch, options, message):
    write_streams(tmp_path / "labels", unlabelled(1))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.iterdir())
    with pytest.raises((ValueError, OSError), match=message):
        calibrated(tmp_path, monkeypatch, decisions=fake.url, decision_model="m", **{"answers": "a"} | options)
    assert sorted(tmp_path.iterdir()) == before and not fake.asked


def test_answers_of_several_models_make_no_gate(fake, tmp_path, monkeypatch, capsys):
    streams = unlabelled(3)
    rng = np.random.default_rng(0)
    log_odds = {(s.id, n): rng.normal(size=1 + len(t.candidates)) for s in streams for n, t in enumerate(s.steps)}
    write_streams(tmp_path / "labels", labelled(streams, log_odds))
    fake.names = (f"m{number}" for number in itertools.count())
    with pytest.raises(ValueError, match=r"^--decisions: m at .*: found answers of 9 models \(m0, m1, m2\), expected"):
        calibrated(tmp_path, monkeypatch, decisions=fake.url, decision_model="m", answers="a", budget=1.0)
    assert "9 requests: 0 cached" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    fake.names = itertools.repeat("m-2026")
    calibrated(tmp_path, monkeypatch, decisions=fake.url, decision_model="m", answers="b", budget=1.0)
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([404] * 9, "--decisions: http.*/decisions: HTTP 404"),
        ([400] * 5, r"--decisions: found answers at 4 of 9 steps, since 5 have no answer: the decision model .* HTTP"),
        ([400] * 4, None),
    ],
)
def test_a_gate_of_few_steps_is_refused_and_one_of_some_says_so(fake, tmp_path, monkeypatch, capsys, faults, message):
    streams, fake.faults = unlabelled(3), faults
    log_odds = {(s.id, n): np.ones(1 + len(t.candidates)) for s in streams for n, t in enumerate(s.steps)}
    write_streams(tmp_path / "labels", labelled(streams, log_odds))
    options = {"decisions": fake.url, "decision_model": "m", "answers": "a", "budget": 1.0}
    if message is None:
        calibrated(tmp_path, monkeypatch, **options)
        assert "fitted on 5 of 9 steps, since 4 have no answer: the decision" in capsys.readouterr().out
    else:
        with pytest.raises((ValueError, RuntimeError), match=message):
            calibrated(tmp_path, monkeypatch, **options)
        assert len(fake.asked) == (3 if 404 in faults else 9)  # those under way, or one asking
    assert (tmp_path / "out").exists() == (message is None)


@pytest.mark.parametrize("name", OF_THE_GATE)
def test_a_check_refuses_what_the_gate_has_of_its_own(name, tmp_path, monkeypatch):
    of_check = {"check": "gate.json", "decisions": "http://127.0.0.1:9"} | OF_THE_GATE | {name: OPTIONS[name]}
    with pytest.raises(ValueError, match=f"--{name}: found it with --check, expected it with --out"):
        checking(tmp_path, monkeypatch, **of_check)


@pytest.mark.slow
def test_a_check_asks_again_and_fails_where_the_model_answers_otherwise(fake, tmp_path, monkeypatch, capsys):
    streams = unlabelled(30)
    options = {"decisions": fake.url, "decision_model": "m", "answers": "a", "budget": 1.0}
    with Cache(tmp_path / "c.sqlite", 1.0) as cache:
        reader, _ = load_decisions(fake.url, "m", Gate.at_costs(c_fa=1.0, c_fn=2.0), cache=cache)
        log_odds = read_labelled(reader, streams).log_odds
        reader.close()
    write_streams(tmp_path / "labels", labelled(streams, log_odds, scale=1.0, bias=0.0))
    calibrated(tmp_path, monkeypatch, **options)
    said = capsys.readouterr().out
    assert "asked again, log-odds are 0 away from those of the first time" in said and "withheld" in said
    gate = Gate.load(tmp_path / "out")
    decisions, figures = gate.fitted["decisions"], gate.fitted["figures"]
    assert len(decisions) == figures["steps"] == 90 and {0, 1} <= set(decisions) <= {0, 1, 2}
    of_check = options | {"check": str(tmp_path / "out")} | OF_THE_GATE
    asked = len(fake.asked)
    checking(tmp_path, monkeypatch, **of_check)
    assert "0 of 90 decisions flip; 0 of 90 did" in capsys.readouterr().out and len(fake.asked) == asked + 90
    fake.shift = 4.0
    with pytest.raises(ValueError, match=r"--check: .*out: \d+ of 90 decisions flip, and 0 of 90 .* cost .* rose by"):
        checking(tmp_path, monkeypatch, **of_check)
    with pytest.raises(ValueError, match=r"--check: .*out: found a gate of the model .*, expected that of .* asked"):
        checking(tmp_path, monkeypatch, **of_check | {"decision_model": "other"})
    write_streams(tmp_path / "labels", streams)
    with pytest.raises(ValueError, match=r"--labels: found other content than .*out was fitted on"):
        checking(tmp_path, monkeypatch, **of_check)


def test_a_gate_is_of_the_model_that_it_was_fitted_on(folder, tmp_path):
    exported, path = read_exported(folder), tmp_path / "gate.json"
    own, other = (
        dataclasses.replace(Gate.at_costs(c_fa=1.0, c_fn=3.0), fitted={"model": model})
        for model in (exported.fingerprints["model"], "0" * 64)
    )
    own.save(path)
    assert with_gate(exported, Gate.load(path)).point.c_fn == 3.0 and Gate.load(path).fitted == own.fitted
    with pytest.raises(ValueError, match=r"--gate: found maps that were fitted on the model 000000000000, expected"):
        with_gate(exported, other)
    moved = dataclasses.replace(other, fitted={"model": "0" * 64, "decision_model": "m"})
    assert with_gate(exported, moved, "m").point.c_fn == 3.0  # one decision model, at another address
    check_model(moved, "1" * 64, "gate.json", "m")
    with pytest.raises(ValueError, match=r"where both are one model, set its fitted\.decision_model to 'n'"):
        with_gate(exported, moved, "n")


def test_a_check_is_of_the_model_and_of_two_askings(tmp_path):
    again, path = {"flips": 0, "steps": 0, "log_odds": [0.0, 0.0]}, str(tmp_path / "gate.json")
    fitted = {"model": "0" * 64, "labels": [], "decisions": [], "again": again}
    gate = dataclasses.replace(Gate.at_costs(c_fa=1.0, c_fn=1.0), fitted=fitted)
    gate.save(path)
    with pytest.raises(ValueError, match=r"gate\.json: fitted\.again: found no step that had two answers"):
        read_fitted(path, [])
    check_model(gate, "0" * 64, path)
    with pytest.raises(ValueError, match=r"--check: .*: found a gate of the model 0{12}, expected that of 1{12}"):
        check_model(gate, "1" * 64, path)


def checking(folder, monkeypatch, **options):
    calibrated(folder, monkeypatch, out=None, **options)


@pytest.mark.parametrize(
    ("before", "now", "apart", "fails"),
    [
        ([1, 0, None, 2], [1, 0, 1, 2], 0.0, False),
        ([1, 0, None, 2], [1, 0, 1, 0], 0.0, True),  # a model that repeats itself exactly
        ([0] * 400, [1] * 4 + [0] * 396, 0.1, False),  # as chance has it, of one that does not
        ([0] * 400, [1] * 12 + [0] * 388, 0.1, True),
        ([0] * 400, [None] * 3 + [0] * 397, 0.1, False),
        ([0] * 400, [None] * 390 + [0] * 10, 0.1, True),  # those that are left agree
    ],
)
def test_more_flips_or_lost_answers_than_between_two_askings_fail(before, now, apart, fails):
    again = {"flips": 3 * (apart > 0), "steps": len(before), "log_odds": [apart, apart]}
    gate = dataclasses.replace(
        Gate.at_costs(c_fa=1.0, c_fn=1.0), fitted={"model": "m", "decisions": before, "again": again}
    )
    streams = of_one_step(len(before))
    z = {0: (-9.0, -9.0), 1: (9.0, -9.0), 2: (-9.0, 9.0)}
    log_odds = {(f"s{n}", 0): (9.0, *z[one]) for n, one in enumerate(now) if one is not None}
    rows = [
        {"stream": name, "step": step, "candidate": k, "time": 0.0, "p_need_fast": 0.9, "p_accept_fast": 0.5}
        for name, step in log_odds
        for k in range(2)
    ]
    found = check(gate, streams, Labelled([], log_odds, {}), Scores.from_rows(rows))
    assert bool(found.failures) == fails and found.change is None


@pytest.mark.parametrize(
    ("then", "apart", "last", "said"),
    [
        (-9.0, 0.0, 0, "the model answers as when it was fitted"),
        (-10.2, 0.0, 0, "moved by more than two askings differed"),
        (-10.2, 1.5, 0, "the model answers as when it was fitted"),
        (-9.5, 0.0, None, "how far its log-odds moved is unknown, as other steps have an answer"),
        (None, 0.0, 0, "how far its log-odds moved is unknown, as this file does not hold them"),
    ],
)
def test_a_check_says_by_how_much_log_odds_moved_where_no_decision_flips(then, apart, last, said, capsys):
    means = {} if then is None else {"log_odds": {"need": 9.0, "accept": then}}
    decisions, again = [0, 0, 0, last], {"flips": 0, "steps": 4, "log_odds": [apart] * 2}
    fitted = {"model": "m", "decisions": decisions, "again": again, **means}
    gate = dataclasses.replace(Gate.at_costs(c_fa=1.0, c_fn=1.0), fitted=fitted)
    streams = of_one_step(4)
    row = {"step": 0, "time": 0.0, "p_need_fast": 0.9, "p_accept_fast": 0.1}
    rows = [{"stream": one.id, "candidate": k, **row} for one in streams for k in range(2)]
    asked = Labelled([], {(one.id, 0): (9.0, -9.0, -9.0) for one in streams}, {})
    calibrating._print_check(check(gate, streams, asked, Scores.from_rows(rows)), gate, "gate.json")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("gate.json: ") and said in lines[-1]
    assert ("mean log-odds moved since the fit: p_need +0, p_accept +1.2; two" in lines[-2]) == (then == -10.2)
