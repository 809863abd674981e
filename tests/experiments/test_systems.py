"""The paper's tables of several systems, against counts made by hand, on made-up traces, votes and scores."""

import dataclasses
import itertools

import numpy as np
import pytest
from etils import epath
from judged_streams import vote_on
from paper_study import cells, columns

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.uncertainty import paired_p_values
from prism_jax.experiments.paper import main, runner
from prism_jax.experiments.paper.study import IntervalSettings, SkippedError
from prism_jax.experiments.paper.system_options import SystemOptions
from prism_jax.experiments.paper.systems import OWN, PEOPLE, read_systems
from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.robustness import Judged, compare_judged
from prism_jax.labelling.judges.votes import write_votes
from prism_jax.scores import Scores, write_scores
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.traces import TraceEvent, trace_stream, write_traces

POINT, SETTINGS = OperatingPoint(trigger="margin"), IntervalSettings(resamples=50)
STREAMS, EVENTS = [f"coding_{number}" for number in range(6)], 5
FAILED = {"candidate_task": ["nothing"]}
"""What the published files hold where a request failed."""


def wanted(stream, event):
    """Whether help is wanted, in the made-up world of these tests."""
    return (STREAMS.index(stream) + event) % 3 == 0


def bold(stream, event):
    return [f"Shall I do task {event}?"]


def shy(stream, event):
    if event == 4 and stream == STREAMS[0]:
        return FAILED
    return [f"Task {event}, perhaps?"] if wanted(stream, event) or event == 1 else []


def traces(answers, streams=STREAMS):
    return {
        stream: tuple(
            TraceEvent(time=f"{event}", text=f"{stream} does thing {event}", answer=answers(stream, event))
            for event in range(EVENTS)
        )
        for stream in streams
    }


def votes(systems, judges, prompt="ours"):
    """What judges say who know the world: an offer is accepted where help is wanted, but by the odd judge nowhere."""
    for of in systems:
        for stream in (trace_stream(*trace) for trace in of.items()):
            for question in questions(stream, 40, prompt=prompt):
                event = stream.steps[question.step].event
                for judge in judges:
                    right = wanted(stream.id, event) == (question.candidate is not None)
                    verdict = right if judge != "odd" else question.candidate is None
                    yield vote_on(question, judge, verdict, prompt=prompt)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("systems")
    systems = {"bold": traces(bold), "shy": traces(shy, STREAMS[:5])}
    for name, of in systems.items():
        write_traces(folder / name, of)
        write_votes(folder / f"{name}.jsonl", votes([of], "abc"))
    both = list(systems.values())
    unique = {vote.key: vote for vote in votes(both, ["a", "odd", "b"])}.values()
    write_votes(folder / "other.jsonl", unique)
    write_votes(folder / "ann.jsonl", [vote for vote in votes([systems["bold"]], ["ann"]) if vote.step < 3])
    write_votes(folder / "bo.jsonl", [vote for vote in votes([systems["bold"]], ["bo"]) if vote.step < 3])
    return SystemOptions(
        system=[f"{name}={folder / name}" for name in systems],
        panel=[*(f"main={folder / name}.jsonl" for name in systems), f"other={folder / 'other.jsonl'}"],
        human=[str(folder / "ann.jsonl"), str(folder / "bo.jsonl")],
        against="bold",
    )


def by_hand(answers, streams=STREAMS, events=range(EVENTS)):
    """TP, FP, TN and FN by the judges of `main`."""
    counts = dict.fromkeys(("tp", "fp", "tn", "fn"), 0)
    for stream, event in itertools.product(streams, events):
        answer = answers(stream, event)
        if answer is not FAILED:
            counts[
                ("tp" if wanted(stream, event) else "fp") if answer else "fn" if wanted(stream, event) else "tn"
            ] += 1
    return counts


def rates(tp, fp, tn, fn):
    return {
        "recall": tp / (tp + fn),
        "precision": tp / (tp + fp),
        "accuracy": (tp + tn) / (tp + fp + tn + fn),
        "false_alarm": fp / (tp + fp),
        "f1": 2 * tp / (2 * tp + fp + fn),
    }


def sheets(name, options, **more):
    inputs = runner.Inputs(systems=options, settings=SETTINGS, point=POINT, **more)
    return {sheet.name: sheet for sheet in runner._make(name, inputs).sheets}


def test_every_system_is_counted_as_by_hand_and_each_judge_has_a_table(options):
    made = sheets("main", options)
    assert list(made) == ["main", "main_other"]
    for name, answers, streams in (("bold", bold, STREAMS), ("shy", shy, STREAMS[:5])):
        row = cells(made["main"], name, "judged by main")
        assert {key: row[key].value for key in main.cells.RATES} == pytest.approx(rates(**by_hand(answers, streams)))
    assert cells(made["main"], "bold")["steps"].value == 30
    assert (cells(made["main"], "shy")["steps"].value, cells(made["main"], "shy")["missing"].value) == (24, 6)
    assert "Of 30 steps, shy lacks 6." in made["main"].note
    people = cells(made["main"], "bold, human labels", PEOPLE)
    assert people["precision"].value == pytest.approx(rates(**by_hand(bold, events=range(3)))["precision"])
    assert {line.section for line in made["main_other"].lines} == {"judged by other", "the paper's systems"}
    assert cells(made["main"], "GPT-4o", "the paper's systems")["f1"].paper == pytest.approx(0.646)


def test_numbers_of_the_paper_stand_beside_rows_of_its_names_and_nowhere_else(options):
    name = options.system[0].replace("bold=", "DeepSeek-R1=")
    made = sheets("main", dataclasses.replace(options, system=[name]))["main"]
    assert cells(made, "DeepSeek-R1", "judged by main")["f1"].paper == pytest.approx(0.8328)
    assert cells(made, "DeepSeek-R1, human labels", PEOPLE)["f1"].paper == pytest.approx(0.8205)
    names = [line.name for line in made.lines]
    assert len(names) == len(set(names))


def test_significance_is_the_difference_over_streams_and_over_events(options):
    made = sheets("significance", options)["significance"]
    common = list(itertools.product(STREAMS[:5], range(EVENTS)))[:-1]
    first, second = (
        rates(
            **{key: by_hand(of, STREAMS[:5])[key] - (of is bold and key == removed) for key in ("tp", "fp", "tn", "fn")}
        )
        for of, removed in ((bold, "fp" if not wanted(STREAMS[0], 4) else "tp"), (shy, ""))
    )
    for unit in ("streams", "events"):
        for key, measure in main.cells.RATES.items():
            row = cells(made, measure.label, f"shy minus bold, over {unit}")
            assert row["difference"].value == pytest.approx(second[key] - first[key], abs=1e-6)
            assert row["steps"].value == len(common)
            assert row["difference"].low <= row["difference"].value <= row["difference"].high
    by_stream, by_event = (cells(made, "F1", f"shy minus bold, over {unit}") for unit in ("streams", "events"))
    assert by_stream["difference"].low != by_event["difference"].low
    assert cells(made, "F1", "the paper: PRISM minus DeepSeek-R1")["p_value"].paper == pytest.approx(0.002)


def test_resampled_p_values_are_those_of_every_resample():
    """Three streams have 27 equally likely resamples, which a brute force lists."""
    proposed = np.array([[1, 1], [0, 1], [1, 0]], bool)
    right = np.array([[[1, 0], [1, 1]], [[1, 1], [0, 1]], [[1, 1], [1, 0]]], float)  # streams, systems, steps
    steps = tuple((f"s{stream}", event) for stream in range(3) for event in range(2))
    systems = [Judged(steps, proposed.ravel(), right[:, system].ravel()) for system in range(2)]
    row = compare_judged("j", *systems, method="percentile", resamples=20_000)
    differences = np.array(
        [right[list(drawn), 1].mean() - right[list(drawn), 0].mean() for drawn in itertools.product(range(3), repeat=3)]
    )
    expected = min(1.0, 2 * min((differences <= 0).mean(), (differences >= 0).mean()))
    assert row.p_values["accuracy"] == pytest.approx(expected, abs=0.02)
    ends = np.quantile(np.repeat(differences, 1000), [0.025, 0.975])
    assert (row.rates["accuracy"].difference.low, row.rates["accuracy"].difference.high) == pytest.approx(
        tuple(ends), abs=1e-6
    )
    gold = [proposed.ravel() == right[:, system].ravel() for system in range(2)]
    settings = {"streams": None, "names": ["accuracy"], "method": "percentile", "resamples": 500}
    by_event = compare_judged("j", *systems, method="percentile", by_stream=False, resamples=500).p_values["accuracy"]
    both = paired_p_values(proposed.ravel(), proposed.ravel(), gold[0], y_second=gold[1], **settings)
    assert by_event == both["accuracy"]


def test_agreement_is_with_people_and_between_panels(options):
    made = sheets("judge_agreement", options)
    row = cells(made["judge_agreement"], "main and human majority", "offers")
    assert row["agreement"].value == 1 and row["support"].value == 18
    assert cells(made["judge_agreement"], "main and other", "silences")["agreement"].value == 1
    within = {line.name: line for line in made["judge_agreement_within"].lines if line.section == "offers"}
    assert set(within) == {"main", "other", "human votes"} and within["other"].cells["agreement"].value < 1


def test_robustness_has_both_systems_under_every_judge(options):
    (made,) = sheets("judge_robustness", options).values()
    assert {line.section for line in made.lines} == {"main", "other", PEOPLE}
    assert [cells(made, "shy", judge)["steps"].value for judge in ("main", "other", PEOPLE)] == [24, 24, 6]
    f1 = [cells(made, name, "main")["f1"].value for name in ("bold", "shy")]
    assert cells(made, "shy", "main")["gain"].value == pytest.approx(f1[1] - f1[0])


def table(folder, name, **changes):
    path = folder / f"{name}.parquet"
    write_scores(path, Scores.from_columns(columns() | changes))
    return f"{name}={path}"


def test_a_scores_table_is_judged_by_its_labels(tmp_path):
    options = SystemOptions(system=[table(tmp_path, "one")])
    systems = read_systems(options, POINT, SETTINGS)
    data = systems.systems[0].data
    offer = data.decide("slow_on_margin", "calibrated").offer
    need, accept = data.steps.y_need, data.steps.y_accept
    known = ~np.isnan(np.where(offer, accept, need))
    tp, fp = (offer & (accept == 1))[known].sum(), (offer & (accept == 0))[known].sum()
    fn, tn = (~offer & (need == 1))[known].sum(), (~offer & (need == 0))[known].sum()
    row = cells(sheets("main", options)["main"], "one", f"judged by {OWN}")
    assert {key: row[key].value for key in main.cells.RATES} == pytest.approx(rates(tp, fp, tn, fn))
    pathways = sheets("pathways", dataclasses.replace(options, system=[options.system[0].replace("one=", "RDC-SFT=")]))
    calibrated = cells(pathways["pathways"], "RDC-SFT", "calibrated signals")
    assert calibrated["f1"].value == row["f1"].value and calibrated["f1"].paper == pytest.approx(0.8661)
    assert 0 < calibrated["audbc"].value <= 1
    assert "audbc_printed_text" not in pathways["pathways"].measures
    assert "audbc_printed_text" in sheets("pathways", options, method="paper")["pathways"].measures


def test_one_table_has_one_judge(options, tmp_path):
    one = table(tmp_path, "one")
    labels, tested = columns()["y_need"], np.asarray(columns()["split"]) == "test"
    flipped = table(tmp_path, "two", y_need=np.where(tested, 1 - labels, labels))
    with pytest.raises(ValueError, match=r"--system=two: .* found y_need = .* expected scores tables with the labels"):
        sheets("main", SystemOptions(system=[one, flipped]))
    both = dataclasses.replace(options, system=[*options.system, one])
    made = sheets("main", both)
    assert list(made) == ["main", "main_other", "main_labels_of_the_scores"]
    assert "Not judged by this judge: one." in made["main"].note
    assert [line.name for line in made["main_labels_of_the_scores"].lines if line.section.startswith("judged")] == [
        "one"
    ]


def test_streams_that_were_logged_are_a_system(options, tmp_path):
    write_streams(tmp_path / "bold.jsonl", [trace_stream(*trace) for trace in traces(bold).items()])
    logged = dataclasses.replace(options, system=[f"bold={tmp_path / 'bold.jsonl'}"], human=())
    row, expected = (cells(sheets("main", of)["main"], "bold")["f1"] for of in (logged, options))
    assert row.value == expected.value


def test_votes_on_two_prompts_are_two_judges(options, tmp_path):
    prompt = "official 123456789abc"
    write_votes(tmp_path / "official.jsonl", votes([traces(bold)], "abc", prompt))
    both = dataclasses.replace(
        options, system=options.system[:1], human=(), panel=[f"main={tmp_path / 'official.jsonl'}"]
    )
    both = dataclasses.replace(both, panel=[*both.panel, options.panel[0]])
    made = sheets("main", both)
    assert list(made) == ["main", "main_main_ours"]
    assert {line.section for line in made["main"].lines} == {f"judged by main, {prompt}", "the paper's systems"}


def test_what_is_missing_is_said(options, tmp_path):
    def fails(name, message, **changes):
        with pytest.raises(ValueError, match=message):
            sheets(name, dataclasses.replace(options, **changes))

    fails("main", "--system=bold: found no verdict on what it did", panel=(), human=())
    fails("main", "--system: found 'x', expected NAME=PATH", system=["x"])
    votes_of_a_panel = [panel.partition("=")[2] for panel in options.panel if panel.startswith("other=")]
    fails("main", "--human: found people named a, b, odd, as judges are", human=votes_of_a_panel)
    fails("main", "--system: found 'bold' 2 times", system=[options.system[0]] * 2)
    fails("significance", "--against: found none, expected the name", against=None)
    fails("significance", "--against: found 'who', expected one of several --system: bold, shy", against="who")
    fails("pathways", "--system: found no scores table")
    fails("judge_agreement", "--panel: found none", panel=(), human=())
    write_votes(
        tmp_path / "b.jsonl",
        [dataclasses.replace(vote, verdict=not vote.verdict) for vote in votes([traces(bold)], "a")],
    )
    fails("main", "found two verdicts of 'a'", panel=[*options.panel, f"main={tmp_path / 'b.jsonl'}"])


def test_all_makes_what_systems_give_and_says_why_not_the_rest(options, tmp_path, capsys):
    inputs = runner.Inputs(systems=options, settings=SETTINGS, point=POINT)
    made = runner.run_experiments(runner.EXPERIMENTS, inputs, epath.Path(tmp_path / "out"))
    assert made == ["main", "significance", "judge_agreement", "judge_robustness"]
    said = capsys.readouterr().out
    assert "skipped thresholds: it is not made of this call's --system or --model; --scores makes it" in said
    assert "skipped latency: it is not made of this call's --system or --model; --model makes it" in said
    assert "skipped pathways: --system: found no scores table" in said
    with pytest.raises(SkippedError, match=r"^domain_transfer: "):
        runner.run_experiments(["domain_transfer"], inputs, epath.Path(tmp_path / "none"))
