"""Files of people's votes: one judge per person, a verdict at every place, ties that are no label."""

import dataclasses

import numpy as np
import pytest
from judged_streams import MOST_EVENTS, bare, labelled, votes_of

from prism_jax.labelling.judges.agreements import ALL_BUT, HUMAN, HUMAN_CONFIG, compare_judges
from prism_jax.labelling.judges.ballots import Ballots, Item, human_ballots, panel_labels
from prism_jax.labelling.judges.labelling import human_of, judge_ballots
from prism_jax.labelling.judges.votes import VotesError, write_votes
from prism_jax.report.judges import agreement_tables
from prism_jax.streams.edit import map_steps
from prism_jax.streams.jsonl import write_streams

STREAMS = labelled(6)
PEOPLE = {"Ada": (0.9, 0.9), "Bo": (0.8, 0.8), "Cy": (0.7, 0.9)}


def by_person(name):
    votes = votes_of(STREAMS, {name: PEOPLE[name]}, seed=len(name))
    return [dataclasses.replace(vote, prompt="page") for vote in votes]


def test_people_are_read_from_several_files_as_judges(tmp_path):
    paths = []
    for name in PEOPLE:
        votes = by_person(name)
        for part, some in enumerate((votes[: len(votes) // 2], votes[len(votes) // 3 :])):  # the same verdicts overlap
            paths.append(str(tmp_path / f"{name}{part}.jsonl"))
            write_votes(paths[-1], some)
    found = human_of(paths, bare(STREAMS), MOST_EVENTS)
    assert found.judges == tuple(PEOPLE)
    for column, name in enumerate(PEOPLE):
        verdicts = {(one.question, one.stream, one.step, one.candidate): (one.verdict,) for one in by_person(name)}
        alone = judge_ballots(bare(STREAMS), verdicts, [name], MOST_EVENTS)
        assert alone.items == found.items and np.array_equal(alone.verdicts[:, 0], found.verdicts[:, column])
    with pytest.raises(ValueError, match=r"found no vote on these streams, .* with most_events = 1"):
        human_of(paths, bare(STREAMS), 1)


def test_two_verdicts_of_a_person_on_one_question_name_both_files(tmp_path):
    votes = by_person("Ada")
    write_votes(tmp_path / "a.jsonl", votes)
    other = dataclasses.replace(votes[3], verdict=not votes[3].verdict)
    write_votes(tmp_path / "b.jsonl", [other])
    with pytest.raises(VotesError, match=r"a\.jsonl and .*b\.jsonl: judge: found two verdicts of 'Ada'"):
        human_of([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], bare(STREAMS), MOST_EVENTS)


def test_streams_with_votes_are_read_as_before_and_not_beside_files_of_votes(tmp_path):
    voted = [map_steps(s, lambda step: dataclasses.replace(step, votes=(True, not step.event % 2))) for s in STREAMS]
    write_streams(tmp_path / "s.jsonl", voted)
    found, expected = human_of([str(tmp_path / "s.jsonl")], [], MOST_EVENTS), human_ballots(voted)
    assert found.items == expected.items and found.judges == expected.judges == ("annotator 1", "annotator 2")
    assert np.array_equal(found.verdicts, expected.verdicts)
    write_votes(tmp_path / "v.jsonl", by_person("Ada"))
    with pytest.raises(VotesError, match=r"s\.jsonl:1: "):
        human_of([str(tmp_path / "v.jsonl"), str(tmp_path / "s.jsonl")], bare(STREAMS), MOST_EVENTS)
    write_streams(tmp_path / "none.jsonl", bare(STREAMS))
    with pytest.raises(ValueError, match=r"none\.jsonl: found no vote on these streams"):
        human_of([str(tmp_path / "none.jsonl")], bare(STREAMS), MOST_EVENTS)


def ballots(verdicts, names):
    items = tuple(Item(f"s{index // 5}", index % 5, silence=False) for index in range(len(verdicts)))
    return Ballots(items, tuple(names), np.asarray(verdicts, float))


def test_ties_are_counted_and_each_person_meets_the_others_only():
    """Three of four people always agree; the fourth contradicts them. Two have no verdict on the second half."""
    truth = np.arange(60) % 3 == 0
    verdicts = np.stack([truth, truth, truth, ~truth], axis=1).astype(float)
    verdicts[30:, :2] = np.nan
    human = ballots(verdicts, ["Ada", "Bo", "Cy", "Di"])
    panel = ballots(truth[:, None], ["model"])
    found = compare_judges({"panel": panel}, human, resamples=50)
    pairs = {(row.judge, row.reference): row for row in found.pairs}
    assert pairs["panel", HUMAN].items == 30, "where two of two differ, nothing is the majority"
    for column, name in enumerate(human.judges):
        labels = panel_labels(np.delete(verdicts, column, axis=1), HUMAN_CONFIG)
        own = verdicts[:, column]
        both = ~np.isnan(labels) & ~np.isnan(own)
        assert pairs[name, ALL_BUT + name].items == both.sum()
        assert pairs[name, ALL_BUT + name].measures["agreement"].value == (labels[both] == own[both]).mean()
    (among,) = [row for row in found.panels if row.panel == "human votes"]
    assert (among.items, among.complete, among.ties) == (60, 30, 30)
    tables = agreement_tables(found)
    assert tables[1].sections[0].rows[-1].cells[3] == "30"
