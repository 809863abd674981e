"""What another gate would have cost, as a user asks: records, scores tables, logs of any columns, refusals."""

import json
import pathlib

import forked
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.settings import AgentSettings, Budget, Exploration, Terms
from prism_jax.decision import off_policy
from prism_jax.decision.off_policy import Logged, OverlapError
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.runs import counterfactual
from prism_jax.runs.running import Running
from prism_jax.scores import ScoresError
from prism_jax.streams import Event

ROOT = pathlib.Path(__file__).parents[2]
ROWS = 4000


@pytest.fixture
def table():
    """A log of 40 people by a policy that offers with a known probability, and the truth of every row."""
    rng = np.random.default_rng(0)
    p = rng.beta(1.5, 1.5, ROWS)
    e = np.where(p > 0.9, 0.0, 0.2 + 0.6 * p)
    offered, accepted = rng.random(ROWS) < e, rng.random(ROWS) < p
    return {
        "who": [f"p{i % 40:02d}" for i in range(ROWS)],
        "p": p,
        "shown": offered,
        "e": e,
        "took": [bool(y) if a else None for y, a in zip(accepted, offered, strict=True)],
        "timid": np.where((p > 0.6) & (p < 0.9), 0.5, 0.0),
    }, accepted


COLUMNS = "--columns=person=who,accepted=took,logged=shown,propensity=e,score=p"


def run(*arguments):
    return forked.run("prism_jax", "counterfactual", *map(str, arguments))


def test_a_log_answers_for_another_policy(tmp_path, table):
    columns, accepted = table
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    done = run(
        f"--log={tmp_path / 'log.parquet'}", COLUMNS, "--target=timid", "--c_fn=1", f"--workdir={tmp_path / 'out'}"
    )
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert "The mean cost itself is not shown" in printed and "With fewer than 100 people" in printed
    truth = ((columns["timid"] - columns["e"]) * (1 - 2.0 * accepted)).mean()
    (line,) = [line for line in (tmp_path / "out" / "difference.csv").read_text().splitlines() if "inverse" in line]
    low, high = map(float, line.replace("−", "-").split("[")[1].split("]")[0].replace("+", "").split(","))
    assert low < truth < high
    assert high - low < 0.08
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"{name}.{kind}" for name in ("difference", "support") for kind in ("csv", "md", "tex")
    }


def tables_of(decisions, settings):
    return counterfactual.tables(counterfactual.estimate_decisions(decisions, settings), settings)


def designed(e, *, people=200, target=None, accepted=0.5, seed=0):
    """A log with these propensities, as the command reads one."""
    rng = np.random.default_rng(seed)
    offered = rng.random(len(e)) < e
    person = np.arange(len(e)) % people
    y = np.where(offered, rng.random(len(e)) < accepted, 0.0)
    logged = Logged(offered, e, y, np.ones(len(e)))
    target = np.ones(len(e)) if target is None else target
    return counterfactual.Decisions(target, logged, person, np.zeros((len(e), 1)), ())


def interval(table, row=0):
    text = table.sections[0].rows[row].cells[0]
    return tuple(float(end) for end in text.replace("−", "-").replace("+", "").split("[")[1].rstrip("]").split(","))


def test_fewer_than_eight_people_have_no_intervals():
    for people in (2, 7):
        with pytest.raises(OverlapError, match=f"^people: found {people}, expected at least 8"):
            tables_of(designed(np.full(2400, 0.5), people=people), counterfactual.EstimateSettings())
    assert tables_of(designed(np.full(2400, 0.5), people=8), counterfactual.EstimateSettings())


def test_the_share_of_offers_that_could_not_be_made_is_said():
    e = np.where(np.arange(40_000) % 125 == 3, 0.0, 0.5)
    table = tables_of(designed(e), counterfactual.EstimateSettings(c_fa=5.0, c_fn=20.0, resamples=200))[0]
    assert "The log cannot show 0.8 % of the target's offers" in table.note


def test_the_level_is_shown_only_where_the_probabilities_of_all_rows_tell_it():
    e = np.where(np.arange(4000) % 20 == 7, 0.002, 0.5)
    decisions = designed(e, target=(e > 0.1) * 1.0)
    assert [table.title[:4] for table in tables_of(decisions, counterfactual.EstimateSettings())] == ["Cost", "What"]
    assert len(tables_of(designed(np.full(4000, 0.5)), counterfactual.EstimateSettings())) == 3


def test_a_refusal_says_how_much_exploration_would_have_been_enough():
    gate = np.arange(6000) % 2 == 0
    always = np.ones(6000)
    with pytest.raises(OverlapError, match=r"^overlap: found that 50.0 %.*; a probability of at least 0\.(\d+) for"):
        tables_of(designed(gate * 1.0), counterfactual.EstimateSettings())
    enough = off_policy.enough_exploration(always, designed(gate * 1.0).logged, np.arange(6000) % 200)
    assert enough == 0.02  # of 3,000 rows, 0.01 makes 30 effective changes
    explored = np.where(gate, 1 - enough, enough)
    assert len(tables_of(designed(explored), counterfactual.EstimateSettings())) == 3
    with pytest.raises(OverlapError, match="no exploration would have been enough for a log of this length"):
        tables_of(designed(np.full(40, 0.5), people=40), counterfactual.EstimateSettings())


REFUSED = {
    "no propensities": (lambda columns: columns.pop("e"), "no column of propensities, expected propensity=COLUMN"),
    "no overlap": (lambda columns: None, "overlap: found that "),
    "a wrong target": (lambda columns: columns.update(timid=2 + columns["p"]), "row 0, column 'timid': found 2."),
    "an answer to no offer": (lambda columns: columns.update(took=[True] * ROWS), "found an accepted offer that was"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_log_cannot_tell_is_one_line(tmp_path, table, case):
    columns, _ = table
    change, message = REFUSED[case]
    change(columns)
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    roles = COLUMNS if "e" in columns else COLUMNS.replace(",propensity=e", "")
    target = ["--target=timid"] if case == "a wrong target" else []
    done = run(f"--log={tmp_path / 'log.parquet'}", roles, *target, f"--workdir={tmp_path / 'out'}")
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == 1 and line.startswith("error: ") and message in line
    assert not (tmp_path / "out").exists()


def test_a_log_without_propensities_answers_for_its_shown_offers(tmp_path, table):
    columns, accepted = table
    rng = np.random.default_rng(1)
    shown = rng.random(ROWS) > 0.08
    columns |= {"shown": shown, "took": [bool(y) if a else None for y, a in zip(accepted, shown, strict=True)]}
    del columns["e"]
    path = str(tmp_path / "log.parquet")
    pq.write_table(pa.table(columns), path)
    roles = ["person=who", "accepted=took", "logged=shown", "score=p"]
    settings = counterfactual.EstimateSettings(c_fn=1.0)
    with pytest.raises(LogError, match=r"or --shown_only, which leaves out \d+ offers that were not made"):
        counterfactual.of_log(path, parse_columns(roles), settings)
    decisions = counterfactual.of_log(path, parse_columns(roles), settings, shown_only=True)
    assert len(decisions.target) == shown.sum() and decisions.logged.offered.all()
    difference = tables_of(decisions, settings)[0]
    assert f"Of shown offers only: {(~shown).sum()} of {ROWS} were not made and are left out." in difference.note
    low, high = interval(difference)
    dropped = columns["p"] < 0.5
    truth = -np.where(dropped, 1 - 2.0 * accepted, 0.0)[shown].mean()
    assert low < truth < high
    done = run(f"--scores={path}", f"--columns={','.join(roles)}", "--c_fn=1", "--shown_only")
    assert done.returncode == 0 and "Of shown offers only" in " ".join(done.stdout.split())
    with pytest.raises(LogError, match=r"found propensity=COLUMN and --shown_only, expected one"):
        pq.write_table(pa.table(columns | {"e": np.where(shown, 0.9, 0.5)}), path)
        counterfactual.of_log(path, parse_columns([*roles, "propensity=e"]), settings, shown_only=True)


def test_a_score_that_is_no_probability_is_refused_with_a_way_out(tmp_path, table):
    columns, path = table[0], str(tmp_path / "log.parquet")
    roles = COLUMNS.removeprefix("--columns=").split(",")
    pq.write_table(pa.table(columns | {"p": 100 * columns["p"] - 1}), path)
    settings = counterfactual.EstimateSettings()
    with pytest.raises(LogError, match=r"column 'p': found scores from -\S+ to \S+, expected .*--target=COLUMN"):
        counterfactual.of_log(path, parse_columns(roles), settings)
    pq.write_table(pa.table(columns | {"p": np.where(np.arange(ROWS) == 7, np.nan, columns["p"])}), path)
    with pytest.raises(LogError, match=r"column 'p': found no score at 1 of \d+ rows, expected .*--target=COLUMN"):
        counterfactual.of_log(path, parse_columns(roles), settings)
    with pytest.raises(LogError, match=r"found no role score in --columns, expected .*--target=COLUMN"):
        counterfactual.of_log(path, parse_columns(roles[:-1]), settings)


def test_a_scores_table_answers_for_the_gate(tmp_path, table):
    columns, accepted = table
    need = 0.5 + columns["p"] / 2
    e = np.full(ROWS, 0.4)
    offered = np.random.default_rng(1).random(ROWS) < e
    scores = {
        "stream": columns["who"],
        "step": np.arange(ROWS),
        "p_need_fast": need,
        "p_accept_fast": columns["p"],
        "y_need": np.ones(ROWS),
        "y_accept": pa.array(np.where(offered, accepted, 0.0), mask=~offered),
        "logged": offered,
        "propensity": e,
    }
    pq.write_table(pa.table(scores), tmp_path / "scores.parquet")
    settings = counterfactual.EstimateSettings(c_fn=3.0)
    decisions = counterfactual.of_scores(str(tmp_path / "scores.parquet"), settings)
    gate = (1 - columns["p"]) <= 3 * columns["p"] * need
    np.testing.assert_array_equal(decisions.target, gate)
    difference, level, _ = tables_of(decisions, settings)
    assert "streams are resampled in their place" in difference.note
    cost = np.where(gate, 1.0 - accepted, 3.0 * accepted).mean()
    for row in level.sections[0].rows:
        low, high = map(float, row.cells[0].replace("−", "-").split("[")[1].rstrip("]").replace("+", "").split(","))
        assert low < cost < high
    with pytest.raises(ValueError, match=r"scores\.parquet, timid: found no such column"):
        counterfactual.of_scores(str(tmp_path / "scores.parquet"), settings, target="timid")


def write_records(path, stream="s", **terms):
    """Records of an agent that explores at 600 events of 30 streams; gives their propensities."""
    terms = Terms(OperatingPoint(margin=0.0), exploration=Exploration(0.3, loss=1e9), **terms)
    agent = Agent(FakeReader(), exported(), AgentSettings(terms))
    rng, records, propensities = np.random.default_rng(0), [], []
    for i in range(600):
        decision = agent.observe(f"{stream}{i % 30}", Event(time=float(i), text=f"{i}"))
        records.append(decision.record())
        propensities.append(decision.propensity)
        if decision.spoke:
            outcome = "accepted" if rng.random() < decision.p_accept else "dismissed"
            records.append(agent.outcome(decision.stream, decision.offer, outcome, float(i), needed=True).record())
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return propensities


def test_no_offer_was_possible_where_the_budget_was_spent(tmp_path):
    expected = write_records(tmp_path / "records.jsonl", offers=Budget(3, 1e9))
    settings = counterfactual.EstimateSettings()
    decisions = counterfactual.of_scores(str(tmp_path / "records.jsonl"), settings, records=True)
    assert sorted(decisions.logged.propensity) == sorted(expected)
    assert 0 < expected.count(0.0) < len(expected)


def test_records_of_the_agent_answer_where_it_explored(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path)
    settings = counterfactual.EstimateSettings(c_fn=8.0)
    decisions = counterfactual.of_scores(str(path), settings, records=True)
    assert len(decisions.target) == 600 and (decisions.logged.propensity > 0).all()
    assert len(tables_of(decisions, settings)) == 3
    strict = counterfactual.EstimateSettings(c_fn=8.0, least_effective=1e6)
    with pytest.raises(OverlapError, match=r"^effective offers: found \d"):
        tables_of(decisions, strict)


def test_files_of_records_or_scores_in_a_folder_are_one_log(tmp_path):
    settings, number = counterfactual.EstimateSettings(c_fn=8.0), []
    for name in ("a", "b"):
        write_records(tmp_path / f"{name}.jsonl", stream=name)
        number.append(len(counterfactual.of_scores(str(tmp_path / f"{name}.jsonl"), settings, records=True).target))
    both = counterfactual.of_scores(str(tmp_path), settings, records=True)
    assert len(both.target) == sum(number) and len(tables_of(both, settings)) == 3
    scores = counterfactual.of_scores(str(tmp_path / "*.jsonl"), settings)
    np.testing.assert_array_equal(scores.target, both.target)
    with pytest.raises(ScoresError, match=r"a\.jsonl: found decision records, .* read as a whole, without"):
        counterfactual.estimate_scores(str(tmp_path), settings, running=Running("ray"))
    (tmp_path / "c.jsonl").write_text('{"stream": "a", "step": 0, "p_need_fast": 0.5, "p_accept_fast": 0.5}\n')
    with pytest.raises(ScoresError, match=r"c\.jsonl: found a scores table, expected decision records"):
        counterfactual.of_scores(str(tmp_path), settings, records=True)
