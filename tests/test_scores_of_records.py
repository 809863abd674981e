"""Decision records as a scores table: rows, labels, propensities; and what evaluation makes of them."""

import dataclasses
import json
import re

import forked
import numpy as np
import pytest
from etils import epath
from fake_reader import Failing, FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.records_streams import published_records
from prism_jax.agent.settings import AgentSettings, Exploration, Terms, terms_from_record
from prism_jax.agent.steps import Observation
from prism_jax.decision.off_policy import EstimateSettings
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.probe.fitting import StreamInputs, fit_probe
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.words import describe
from prism_jax.runs import counterfactual
from prism_jax.runs.promising import promise_scores
from prism_jax.runs.running import Running
from prism_jax.runs.scores_files import evaluate_scores
from prism_jax.scores import ScoresError, read_scores
from prism_jax.scores.records import TIMEOUT, by_days
from prism_jax.streams import Candidate, Event
from prism_jax.streams.jsonl import read_streams

OFFERS = (Candidate(text="Tea?"), Candidate(text="Coffee?"))
MINUTE = 60.0


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def agent(policy="dynamic", exploration=None, margin=0.3):
    point = OperatingPoint(policy=policy, margin=margin)
    return Agent(FakeReader(), exported(), AgentSettings(Terms(point, exploration=exploration)))


def test_every_candidate_is_a_row_with_raw_signals(tmp_path):
    deciding = agent()
    decisions = deciding.observe_many(
        [
            Observation(f"s{i % 4}", Event(time=float(i), text=f"{i}"), OFFERS if i % 2 else (Candidate(),))
            for i in range(80)
        ]
    )
    answers = {}
    for i, decision in enumerate(d for d in decisions if d.spoke):
        outcome = ("accepted", "dismissed", "ignored")[i % 3]
        answers[decision.offer] = deciding.outcome(decision.stream, decision.offer, outcome, 100.0, needed=i % 2 == 0)
    records = [d.record() for d in decisions] + [answer.record() for answer in answers.values()]
    scores = read_scores(write(tmp_path / "records.jsonl", records))
    assert len(scores) == sum(len(d.candidates) for d in decisions)
    row = 0
    for decision in decisions:
        for i in range(len(decision.candidates)):
            chosen = i == decision.signals.best
            assert (scores.stream[row], scores.step[row], scores.candidate[row]) == (decision.stream, decision.event, i)
            assert scores.p_need_fast[row] == decision.fast.raw_need
            assert scores.p_accept_fast[row] == decision.fast.raw_accept[i]
            slow = (np.nan, np.nan) if decision.slow is None else (decision.slow.raw_need, decision.slow.raw_accept[i])
            np.testing.assert_array_equal((scores.p_need_slow[row], scores.p_accept_slow[row]), slow)
            assert scores.logged[row] == (decision.spoke and chosen)
            answer = answers.get(decision.offer)
            y_accept = float(answer.outcome == "accepted") if answer and chosen else np.nan
            np.testing.assert_array_equal(scores.y_accept[row], y_accept)
            np.testing.assert_array_equal(scores.y_need[row], float(answer.needed) if answer else np.nan)
            np.testing.assert_array_equal(scores.propensity[row], 1.0 if decision.spoke and chosen else np.nan)
            row += 1
    assert {scores.y_accept[i] for i in np.flatnonzero(scores.logged == 1)} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("later", "y_accept"),
    [
        ((), np.nan),  # the stream ended
        ((MINUTE,), np.nan),  # seen, and the offer still stands
        ((TIMEOUT,), np.nan),
        ((2 * TIMEOUT,), np.nan),  # nobody was there while it stood
        ((MINUTE, TIMEOUT), np.nan),
        ((MINUTE, TIMEOUT + 1), 0.0),
        ((TIMEOUT, TIMEOUT + 1), 0.0),
    ],
)
def test_an_outcome_that_never_comes_is_a_refusal_where_the_offer_was_seen(tmp_path, later, y_accept):
    deciding = agent()
    first = deciding.observe("s", Event(time=0.0, text="x"), costs={"policy": "always"})
    others = [deciding.observe("s", Event(time=t, text="y"), costs={"policy": "never"}) for t in later]
    elsewhere = deciding.observe("t", Event(time=9 * TIMEOUT, text="y"), costs={"policy": "never"})
    records = [decision.record() for decision in (first, *others, elsewhere)]
    scores = read_scores(write(tmp_path / "records.jsonl", records))
    np.testing.assert_array_equal(scores.y_accept, [y_accept, *[np.nan] * (len(later) + 1)])


def answered(deciding, *offers, count=600, text="{}", needed=lambda decision, draw: draw < decision.p_need):
    """Records of events of 30 streams, with an answer to every offer, and whether help was needed."""
    records, rng = [], np.random.default_rng(0)
    for i in range(count):
        decision = deciding.observe(f"s{i % 30}", Event(time=float(i), text=text.format(i)), *offers)
        records.append(decision.record())
        if decision.spoke:
            outcome = "accepted" if rng.random() < decision.p_accept else "dismissed"
            judged = needed and bool(needed(decision, rng.random()))
            records.append(deciding.outcome(decision.stream, decision.offer, outcome, float(i), needed=judged).record())
    return records


def logged(exploration, count=600):
    return answered(agent(exploration=exploration, margin=0.0), count=count)


def calibration(tmp_path):
    fit = {"temperature": 1.0, "base_rate": 0.5, "count": 9, "effective_count": 9.0, "offer_rate": 0.5}
    tree = {"need_fast": {**fit, "offer_rate": None}, "accept_fast": fit, "need_slow": None, "accept_slow": None}
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(tree))
    return str(path)


def test_a_log_that_explored_everywhere_is_evaluated_with_its_propensities(tmp_path, capsys):
    path = write(tmp_path / "records.jsonl", logged(Exploration(0.3, loss=1e9)))
    evaluate_scores(str(path), epath.Path(tmp_path / "out"), OperatingPoint(), calibration=calibration(tmp_path))
    assert "of shown offers only" not in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").exists()


def test_a_log_with_events_that_no_offer_could_reach_is_evaluated_on_shown_offers_only(tmp_path, capsys):
    path = write(tmp_path / "records.jsonl", logged(Exploration(0.3, loss=0.2)))
    arguments = dict(calibration=calibration(tmp_path))
    with pytest.raises(ScoresError, match="found no propensity beside logged = false"):
        evaluate_scores(str(path), epath.Path(tmp_path / "out"), OperatingPoint(), **arguments)
    evaluate_scores(str(path), epath.Path(tmp_path / "out"), OperatingPoint(), shown_only=True, **arguments)
    assert "of shown offers only" in capsys.readouterr().out


def test_damaged_records_are_named_by_line(tmp_path):
    records = [record for record in logged(None, 60)]
    path = tmp_path / "records.jsonl"
    offer = next(i for i, record in enumerate(records) if record["kind"] == "outcome")
    strange = {**records[offer], "offer": "s0/99"}
    for content, message in (
        (
            [*records, records[offer]],
            f"line {len(records) + 1}, offer: found a second outcome of '{records[offer]['offer']}'",
        ),
        ([*records, strange], f"line {len(records) + 1}, offer: found an outcome of 's0/99'"),
        ([records[0], {"p_need_fast": 1}], "line 2, kind: found no record"),
        ([{k: v for k, v in records[0].items() if k != "fast"}], "line 1, fast: found no such key"),
        ([{**records[0], "fast": 3}], "line 1: found another content than a record has"),
        ([records[0], {**records[0]}], "line 2: found stream 's0', step 0, candidate 0 a second time"),
        ([records[0], {**records[30], "propensity": 3.0}], "propensity: found 3.0, expected"),
    ):
        with pytest.raises(ScoresError, match=f"^{path}, .*{message}"):
            read_scores(write(path, content))


def test_the_table_says_which_need_the_model_estimates(tmp_path):
    """An export that says `given_accept` reaches the scores table through the records, and replays as recorded."""
    for target in ("marginal", "given_accept"):
        model = dataclasses.replace(exported(), need_target=target)
        deciding = Agent(FakeReader(), model, AgentSettings(Terms(OperatingPoint())))
        record = deciding.observe("s", Event(time=0.0, text="x")).record()
        scores = read_scores(write(tmp_path / f"{target}.jsonl", [record]))
        assert scores.need_given_accept == (target == "given_accept")
        assert terms_from_record(record).need_target == target


def ordinary(count=600, needed=False, **given):
    """Records without exploration: silence has propensity 0, and mostly nobody says whether help was needed."""
    deciding = Agent(FakeReader(), exported(), AgentSettings(Terms(OperatingPoint(margin=0.0)), **given))
    judge = (lambda _, draw: draw < 0.5) if needed else None
    return answered(deciding, ["Tea?", "Coffee?"], count=count, text="Opens {}", needed=judge)


def evaluate(path, folder, *arguments):
    return forked.run("prism_jax.evaluate", f"--scores={path}", f"--workdir={folder}", *arguments)


@pytest.mark.parametrize("needed", [False, True])
def test_the_page_evaluates_ordinary_records_by_one_command(root, tmp_path, needed):
    page = (root / "docs" / "agent.md").read_text(encoding="utf-8")
    (arguments,) = re.findall(r"prism_jax.evaluate --scores=records.jsonl (.*)--workdir=out", page)
    path = write(tmp_path / "records.jsonl", ordinary(needed=needed))
    done = evaluate(path, tmp_path / "out", *arguments.split())
    assert done.returncode == 0, done.stderr
    assert "of shown offers only" in done.stdout and (tmp_path / "out" / "report.html").exists()
    assert ("no column p_need_fast" in done.stdout) == (not needed)


def test_what_ordinary_records_lack_is_named_with_the_flag_that_helps(tmp_path):
    records = ordinary(200)
    done = evaluate(write(tmp_path / "records.jsonl", records), tmp_path / "out")
    assert done.returncode and "--shown_only" in done.stderr
    silent = write(tmp_path / "silent.jsonl", [record for record in records if record["kind"] == "decision"])
    with pytest.raises(ScoresError, match="y_accept: found no offer with an answer, expected outcomes"):
        evaluate_scores(str(silent), epath.Path(tmp_path / "out"), OperatingPoint(), shown_only=True)
    alone = write(tmp_path / "alone.jsonl", [record for record in records if record["stream"] == "s0"])
    done = evaluate(alone, tmp_path / "out", "--shown_only")
    assert done.returncode and "found records of one stream on one day, expected two days or more" in done.stderr
    assert "--calibration=FILE" in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize("streams", [1, 2])
def test_the_records_of_one_person_are_evaluated_by_days(tmp_path, capsys, streams):
    """Folds and intervals are over the days, of one stream or of several, which may have other domains."""
    deciding, records, rng = agent(exploration=Exploration(0.3, loss=1e9), margin=0.0), [], np.random.default_rng(0)
    for i in range(400):
        names = {} if streams == 1 else {"person": "ada"}
        at = 86_400.0 * (20_000 + i // 40) + i
        decision = deciding.observe(f"s{i % streams}", Event(time=at, text=f"{i}"), **names)
        records.append(decision.record() | {"domain": ("coding", "writing")[i % streams]})
        if decision.spoke:
            outcome = "accepted" if rng.random() < 0.5 else "dismissed"
            records.append(deciding.outcome(decision.stream, decision.offer, outcome, at + 1).record())
    path = write(tmp_path / "records.jsonl", records)
    evaluate_scores(str(path), epath.Path(tmp_path / "out"), OperatingPoint())
    printed = " ".join(capsys.readouterr().out.split())
    whose = "10 days" if streams == 1 else "20 streams of 10 days"
    assert f"400 test steps of {whose}, " in printed and "per step, p_accept alone, of one person " in printed
    assert "95 % intervals over 10 days" in printed and "people" not in printed
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert (evaluation["unit"], evaluation["units"], evaluation["population"]) == ("days", 10, "of one person")
    found = by_days(read_scores(path))
    assert set(found.stream if streams == 1 else found.person) == {f"2024-10-{4 + day:02d}" for day in range(10)}
    # A promise is about such days, and another gate is compared over them; files that cannot be read are left out.
    (tmp_path / "all").mkdir()
    path.rename(tmp_path / "all" / path.name)
    (path := tmp_path / "all").joinpath("bad.jsonl").write_text("{\n")
    running = Running(skip_bad=True)
    promise_scores(str(path), ["false_alarms<=0.9"], OperatingPoint(), level=0.9, shown_only=True, running=running)
    assert "Certified on 10 days" in " ".join(capsys.readouterr().out.split())
    decisions = counterfactual.of_scores(str(path / "records.jsonl"), EstimateSettings())
    assert len(set(decisions.person)) == 10 and "people are spoken of, days stand: one person" in decisions.notes[-1]
    assert "streams are resampled" not in " ".join(decisions.notes)


@pytest.mark.slow
@pytest.mark.parametrize("keep_texts", [False, True])
def test_records_become_streams_that_a_probe_trains_on(tmp_path, keep_texts):
    records = ordinary(needed=True, keep_texts=keep_texts)
    path, out = write(tmp_path / "records.jsonl", records), tmp_path / "streams.jsonl"
    done = forked.run("prism_jax", "import", "--from=records", f"--source={path}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert ("--keep_texts" in done.stdout) == (not keep_texts)
    streams, scores = read_streams(out), read_scores(path)
    assert len(streams) == 30 and sum(len(one.events) for one in streams) == 600
    offers = {(s.id, step.event, i): o for s in streams for step in s.steps for i, o in enumerate(step.candidates)}
    for i, key in enumerate(zip(scores.stream, scores.step, scores.candidate, strict=True)):
        offer = offers[key]
        for found, expected in ((offer.y_accept, scores.y_accept[i]), (offer.propensity, scores.propensity[i])):
            assert found == expected or (found is None and np.isnan(expected))
        assert offer.logged == scores.logged[i] and offer.text == ("Tea?", "Coffee?")[key[2]]
    texts = {event.text for one in streams for event in one.events}
    assert len(texts) == (600 if keep_texts else 1)
    fit_probe([StreamInputs(describe(one)) for one in streams], FitConfig(inner=2), StatesConfig())


def test_a_missing_event_and_a_strange_outcome_are_named_by_line(tmp_path):
    records = ordinary(90)
    strange = {"format": 1, "kind": "outcome", "stream": "s0", "offer": "s0/99", "outcome": "accepted", "time": 1.0}
    decided = [record for record in records if record["kind"] == "decision"]
    for content, message in (
        (decided[30:], ":1: event: found 1, expected 0, the next of its stream"),
        ([*records, {**strange, "needed": None}], f", line {len(records) + 1}, offer: found an outcome of 's0/99'"),
    ):
        path = write(tmp_path / "records.jsonl", content)
        with pytest.raises(ValueError, match=re.escape(f"{path}{message}")):
            published_records(path)


def test_an_event_without_an_answer_has_no_row_and_no_step(tmp_path):
    items = [Observation("s", Event(time=float(i), text=f"event {i}")) for i in range(9)]
    records = [decision.record() for decision in Agent(Failing(), exported()).observe_many(items)]
    path = write(tmp_path / "records.jsonl", records)
    assert read_scores(path).step.tolist() == [0, 1, 3, 4, 6, 7]
    (stream,) = published_records(path).streams
    assert (len(stream.events), [step.event for step in stream.steps]) == (9, [0, 1, 3, 4, 6, 7])
    del records[2]["unanswered"]
    with pytest.raises(ValueError, match=r"records\.jsonl:3: p_need: found None \(NoneType\), expected a finite"):
        published_records(write(path, records))


def test_candidates_may_be_texts():
    for one, other in ((["Tea?", "Coffee?"], OFFERS), (None, None)):
        decisions = [agent().observe("s", Event(time=0.0, text="x"), given) for given in (one, other)]
        assert decisions[0].fast == decisions[1].fast and decisions[0].candidates == decisions[1].candidates
    for bad, message in (("Tea?", "found one text, expected a list of offers"), (["Tea?", " "], "found ' '")):
        with pytest.raises(RefusedError, match=f"stream 's': candidates: .*{message}"):
            agent().observe("s", Event(time=0.0, text="x"), bad)


def test_the_python_of_the_page_runs(root, monkeypatch, capsys):
    page = (root / "docs" / "agent.md").read_text(encoding="utf-8")
    codes = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setattr(Agent, "load", lambda folder, settings=None: Agent(FakeReader(), exported(), settings))
    monkeypatch.setattr("prism_jax.agent.exported.read_exported", lambda folder: exported())
    found = {}
    for code in codes:
        exec(compile(code, "docs/agent.md", "exec"), found)
    assert found["agent"].settings.terms.exploration == Exploration(0.1, loss=0.1, seed=7)
    assert found["agent"].settings.keep_texts
