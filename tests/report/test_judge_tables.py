"""The tables about judges, on verdicts of simulated judges and on real people's votes."""

import re

import numpy as np
import pytest
from judged_streams import MOST_EVENTS, bare, labelled, offering, voted, votes_of
from real_checkout import CHECKOUT, needs_checkout

from prism_jax.decision import metrics
from prism_jax.labelling.judges.agreements import HUMAN_CONFIG, KINDS, compare_judges
from prism_jax.labelling.judges.ballots import Ballots, PanelConfig, human_ballots, majority
from prism_jax.labelling.judges.labelling import gather, judge_ballots
from prism_jax.labelling.judges.robustness import METHODS, compare_judged, correct, deeds, judged
from prism_jax.report.judges import METHOD_WORDS, agreement_tables, corrected_table
from prism_jax.report.numbers import percent
from prism_jax.report.table import print_all
from prism_jax.streams.proactivebench import load

PANELS = {
    "sharp": {"a": (0.9, 0.9), "b": (0.85, 0.9), "c": (0.9, 0.85)},
    "blunt": {"d": (0.7, 0.7), "e": (0.75, 0.65), "f": (0.65, 0.75)},
}


@pytest.fixture(scope="module")
def streams():
    return labelled(60)


@pytest.fixture(scope="module")
def panels(streams):
    found = {}
    for seed, (name, rates) in enumerate(PANELS.items()):
        verdicts = gather(votes_of(streams, rates, seed=10 * seed), list(rates))
        found[name] = judge_ballots(bare(streams), verdicts, list(rates), MOST_EVENTS)
    return found


@pytest.fixture(scope="module")
def human(streams):
    """One annotator, who gives the labels themselves, in every third stream."""
    return human_ballots(map(voted, streams[::3]))


def rows_of(table):
    return {row.name: row.cells for section in table.sections for row in section.rows}


def test_sharper_judges_agree_more_and_constant_judges_stand_beside_them(panels, human):
    found = compare_judges(panels, human, resamples=200)
    pairs, among, errors = agreement_tables(found)
    for kind in KINDS:
        rows = {(row.judge, row.reference): row for row in found.pairs if row.kind == kind}
        sharp, blunt = (rows[name, "human majority"].measures["kappa"].value for name in PANELS)
        assert sharp > blunt + 0.2
        assert sharp > rows["sharp: a", "human majority"].measures["kappa"].value - 0.05
        assert ("sharp", "blunt") in rows and ("blunt: d", "blunt: e") in rows and ("sharp: a", "blunt: d") not in rows
        row = rows["blunt", "human majority"]
        assert row.constant == max(row.measures["base_rate"].value, 1 - row.measures["base_rate"].value)
        assert abs(rows["sharp: a", "human majority"].sensitivity.value - 0.9) < 0.12
    assert [section.title for section in pairs.sections] == ["Offers", "Silences"]
    for section in pairs.sections:
        assert {row.name: row.cells[-1] for row in section.rows} == {
            f"{row.judge} / {row.reference}": percent(row.constant)
            for row in found.pairs
            if row.kind == section.title.lower()
        }
    assert set(rows_of(among)) == {"sharp", "blunt"}, "one annotator has no pair"
    assert rows_of(errors).keys() == {"sharp", "blunt", *(f"{p}: {j}" for p, names in PANELS.items() for j in names)}
    interval = re.compile(r"−?\d+\.\d+ \[−?\d+\.\d+, −?\d+\.\d+\]")
    assert all(interval.fullmatch(cell) for row in rows_of(errors).values() for cell in row[1:])


def test_a_system_that_is_better_by_every_panel_has_positive_differences(streams, panels):
    truth = {(s.id, t.event): t.y_need * t.candidates[0].y_accept for s in streams for t in s.steps}

    def system(keep):
        return [
            offering(one, lambda step, name=one.id: bool(truth[name, step.event]) or keep(step))
            for one in bare(streams)
        ]

    good, bad = system(lambda step: False), system(lambda step: True)
    for ballots in panels.values():
        rater = majority(ballots)
        row = compare_judged("panel", judged(deeds(bad), rater), judged(deeds(good), rater), resamples=300)
        assert row.left_out == 0
        assert row.rates["precision"].difference.low > 0


def test_corrected_scores_are_nearer_to_the_truth(streams, panels, human):
    truth = {(s.id, t.event): t for s in streams for t in s.steps}
    system = [
        offering(
            one, lambda step, name=one.id: step.event % 4 == 0 or truth[name, step.event].candidates[0].y_accept == 1
        )
        for one in bare(streams)
    ]
    deeds = [(step.candidates[0].logged, truth[s.id, step.event]) for s in system for step in s.steps]
    proposed = [made for made, _ in deeds]
    accepted = [true.candidates[0].y_accept == 1 if made else true.y_need == 0 for made, true in deeds]
    counts = metrics.confusion(np.array(proposed), np.array(proposed) == np.array(accepted))
    expected = float(metrics.rates(counts).precision)
    rows = correct(system, {"blunt": majority(panels["blunt"])}, majority(human, HUMAN_CONFIG), resamples=300)
    assert [row.method for row in rows] == list(METHODS) and tuple(METHOD_WORDS) == METHODS
    found = {row.method: row.numbers["precision"] for row in rows}
    assert not found["judge_only"].low <= expected <= found["judge_only"].high
    assert found["rectified"].low <= expected <= found["rectified"].high
    assert abs(found["rectified"].value - expected) < abs(found["judge_only"].value - expected)
    table = corrected_table(rows, "even")
    assert len(table.sections) == 1 and len(table.sections[0].rows) == len(METHODS)
    nobody = Ballots((), ("majority",), majority(human).verdicts[:0])
    unknown = correct(system, {"blunt": majority(panels["blunt"])}, nobody, resamples=10)
    assert {row.problem.split(":")[0] for row in unknown} == {"human"}
    assert all(cell == "–" for row in corrected_table(unknown, "even").sections[0].rows for cell in row.cells)


def test_labels_in_one_stream_have_no_interval(streams, panels):
    only = {name: Ballots(b.items[:6], b.judges, b.verdicts[:6]) for name, b in panels.items()}
    assert len({item.stream for item in only["sharp"].items}) == 1
    pairs, among = agreement_tables(compare_judges(only, resamples=50))
    assert "[" not in pairs.to_csv() + among.to_csv()


@needs_checkout
def test_real_annotators_agree_beyond_chance_and_less_than_they_seem_to(tmp_path, capsys):
    """Real votes through the same tables: one annotator against the majority of all, and all among each other."""
    votes = human_ballots(load(CHECKOUT, tmp_path))
    assert votes.judges == ("annotator 1", "annotator 2", "annotator 3")
    config = PanelConfig(missing="majority_of_present")
    found = compare_judges({"annotators": votes}, votes, config=config, resamples=1000)
    print_all(agreement_tables(found))
    assert "Krippendorff" in capsys.readouterr().out.replace("\n", " ")
    panels = {row.kind: row for row in found.panels if row.panel == "annotators"}
    assert (panels["offers"].items, panels["silences"].items) == (1148, 242)
    assert (panels["offers"].complete, panels["silences"].complete) == (1000, 197)
    offers, silences = (panels[kind].measures for kind in KINDS)
    assert 0 < offers["alpha"].low < offers["alpha"].high < 0.4 < offers["agreement"].low
    assert silences["alpha"].high < 0.1, "on silence, annotators agree no more than by chance"
    pairs = {(row.kind, row.judge, row.reference): row for row in found.pairs}
    same = pairs["silences", "annotators", "human majority"]
    assert (same.items, same.measures["agreement"].value) == (223, 1.0)
    assert same.constant == pytest.approx(197 / 223), "raw agreement of a judge who always accepts silence, or never"
    assert ("offers", "annotator 1", "annotator 2") in pairs
