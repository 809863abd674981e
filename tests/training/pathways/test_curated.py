"""Curation keeps the rows of highest R_DC, says what became of the others, and is done once."""

import collections
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathway_streams import STREAMS, each_candidate, each_step, supervised

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.pathways.curated import KEPT, NOT_SELECTED, UNJUDGED, UNTAUGHT, curate, rows_of

UNIT = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
OFFERS = st.builds(lambda y, q: Candidate(y_accept=y, teacher_accept=q), UNIT, UNIT)
STEPS = st.lists(st.tuples(UNIT, UNIT, st.lists(OFFERS, min_size=1, max_size=3)), min_size=1, max_size=6)
PATHWAYS = st.builds(
    PathwayConfig,
    keep=st.sampled_from([0.2, 0.5, 1.0]),
    stratify=st.booleans(),
    score=st.sampled_from(["default", "paper"]),
)


def stream(drawn, name="a", domain="coding"):
    steps = [
        Step(event=i, y_need=y, teacher_need=q, candidates=tuple(offers)) for i, (y, q, offers) in enumerate(drawn)
    ]
    return Stream(id=name, domain=domain, events=(Event(time=0.0, text="x"),) * len(steps), steps=tuple(steps))


def by_hand(step, offer, kind):
    """The score of one row in plain Python; None where it has none."""
    y, q, a, b = step.y_need, step.teacher_need, offer.y_accept, offer.teacher_accept
    if y is None or q is None or (a is not None and b is None):
        return None
    counted = a is not None and (kind == "default" or q >= 0.5)
    return (0 if a is None else a) - (q - y) ** 2 - (counted and (b - a) ** 2)


@given(STEPS, PATHWAYS)
def test_the_kept_rows_are_the_best_of_those_that_can_be_scored(drawn, pathway):
    before = stream(drawn)
    pairs = [(step, offer) for step in before.steps for offer in step.candidates]
    scores = [by_hand(step, offer, pathway.score) for step, offer in pairs]
    known = [score for score in scores if score is not None]
    if not known:
        with pytest.raises(ValueError, match=r"^data: found no "):
            curate([before], pathway)
        return
    found = curate([before], pathway)
    usable = np.array([score is not None for score in scores])
    np.testing.assert_allclose(rows_of([before]).score(pathway.score)[usable], known, atol=1e-15)
    left = [(step.event, offer) for one in found.streams for step in one.steps for offer in step.candidates]
    assert len(left) == found.total(KEPT) == max(1, math.floor(pathway.keep * len(known) + 0.5))
    assert collections.Counter(left) <= collections.Counter((step.event, offer) for step, offer in pairs)
    if not pathway.stratify:
        steps = {step.event: step for step in before.steps}
        kept = sorted(by_hand(steps[event], offer, pathway.score) for event, offer in left)
        assert kept == pytest.approx(sorted(known)[-len(left) :], abs=1e-15)


@given(st.lists(STEPS, min_size=1, max_size=3), PATHWAYS)
def test_every_row_is_counted_once_under_the_first_reason_that_holds(drawn, pathway):
    streams = [stream(steps, f"s{i}", ("coding", "life")[i % 2]) for i, steps in enumerate(drawn)]
    pairs = [(one.domain, step, offer) for one in streams for step in one.steps for offer in step.candidates]
    if all(by_hand(step, offer, "default") is None for _, step, offer in pairs):
        return
    found = curate(streams, pathway)
    assert found.total() == len(pairs)
    expected = collections.Counter(
        (domain, UNJUDGED if step.y_need is None else UNTAUGHT)
        for domain, step, offer in pairs
        if by_hand(step, offer, "default") is None
    )
    counted = collections.Counter()
    for count in found.counts:
        assert (count.stratum == UNJUDGED) == (count.outcome == UNJUDGED)
        if count.outcome not in (KEPT, NOT_SELECTED):
            counted[count.domain, count.outcome] += count.rows
    assert counted == expected


def test_the_papers_score_is_a_choice_of_the_pathway():
    """Row by row as printed: rows with q_need below one half carry no penalty on acceptance."""
    default, paper = (supervised(name="rdc_sft", keep=0.5, stratify=False, score=kind) for kind in ("default", "paper"))
    assert {s.id: s.steps for s in default.streams} != {s.id: s.steps for s in paper.streams}
    assert paper.facts["pathway"].startswith("rdc_sft: the 50% with the highest R_DC of the paper")


@pytest.mark.parametrize("name", ["rdc_sft", "weighted_sft", "schema_sft"])
def test_judged_proposals_are_curated_by_their_verdicts_and_silent_rows_train_no_response(name):
    """Odd steps stay silent. The verdict on what the teacher would have said counts at these, too."""

    def proposed(step):
        text = f"Mend {step.event}"
        offer = Candidate(
            proposal=text,
            teacher_accept=step.candidates[0].teacher_accept,
            y_accept=float(step.event % 3 == 0),
            response=None if step.event % 2 else text,
        )
        return dataclasses.replace(step, candidates=(offer,))

    streams = each_step(STREAMS, proposed)
    found = supervised(streams, name=name, keep=0.5, stratify=False, slow=0.3)
    kept = [(step, *step.candidates) for one in found.streams for step in one.steps]
    total = sum(len(one.steps) for one in streams)
    assert len(kept) == (total if name == "schema_sft" else math.floor(0.5 * total + 0.5))
    assert all(offer.proposal == f"Mend {step.event}" and offer.text is None for step, offer in kept)
    assert {step.event % 2 for step, offer in kept if offer.response is None} == {1}
    if name == "rdc_sft":
        scores = sorted(by_hand(step, *step.candidates, "default") for one in streams for step in one.steps)
        assert sorted(by_hand(step, offer, "default") for step, offer in kept) == pytest.approx(scores[-len(kept) :])


@pytest.mark.parametrize("name", ["rdc_sft", "weighted_sft"])
def test_training_refuses_to_filter_a_curated_file_and_says_what_to_do(name, tmp_path):
    """The mark survives the file, and one curated stream among whole ones is enough."""
    curated = curate(STREAMS, PathwayConfig(keep=0.5)).streams
    write_streams(tmp_path / "both.jsonl", [*(s for s in STREAMS if s.id != curated[0].id), curated[0]])
    with pytest.raises(ValueError) as error:
        supervised(tuple(read_streams(tmp_path / "both.jsonl")), name=name)
    assert str(error.value) == (
        f"data: found 1 of {len(STREAMS)} streams curated already ({curated[0].id!r}: {curated[0].curated}), expected "
        f"streams with all their rows: pathway {name} would filter them again; --config.pathway.filter=off trains on "
        "all rows of a curated file"
    )


def test_a_curated_file_trains_without_the_filter_on_what_the_filter_would_have_kept():
    curated = curate(STREAMS, PathwayConfig(keep=0.5)).streams
    found, filtered = supervised(curated, name="rdc_sft", filter="off"), supervised(name="rdc_sft", keep=0.5)
    assert found.streams == filtered.streams
    assert found.loss == filtered.loss
    assert found.facts["curated"].startswith(f"found {len(curated)} of {len(curated)} streams curated already ('sim-")
    assert "curated" not in supervised(name="rdc_sft").facts
    assert "curated" not in supervised(name="joint").facts


def test_rows_are_selected_once():
    curated = curate(STREAMS, PathwayConfig(keep=0.5)).streams
    with pytest.raises(ValueError, match="expected streams with all their rows: rows are selected once"):
        curate(curated, PathwayConfig(keep=0.5))


def test_a_silent_row_needs_no_probability_of_acceptance():
    bare = each_candidate(STREAMS, lambda c: dataclasses.replace(c, y_accept=None, teacher_accept=None))
    found = curate(bare, PathwayConfig(keep=1.0))
    assert found.total(KEPT) == found.total()
    assert math.isnan(found.accept.before)
    untaught = each_step(STREAMS, lambda step: dataclasses.replace(step, teacher_need=None))
    with pytest.raises(ValueError, match=r"^data: found no labelled row with a teacher's probabilities"):
        curate(untaught, PathwayConfig())
