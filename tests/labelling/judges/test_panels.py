"""Panels, how far they agree, and two systems under them."""

import collections
import itertools

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, matthews_corrcoef

from prism_jax.decision.uncertainty import panel_intervals
from prism_jax.labelling.judges.agreements import compare_judges
from prism_jax.labelling.judges.ballots import Ballots, Item, PanelConfig, human_ballots, panel_labels
from prism_jax.labelling.judges.robustness import compare_judged, correct, deeds, judged
from prism_jax.streams import Candidate, Event, Step, Stream

POLICIES = list(
    itertools.product(
        ("majority_of_all", "majority_of_present", "require_all"), ("missing", "rejected", "accepted"), (False, True)
    )
)


def counted(verdicts, config):
    """The label by counting one row at a time."""
    votes = collections.Counter(verdicts)
    present = votes[True] + votes[False]
    most = max(votes[True], votes[False])
    known = {
        "majority_of_all": most > len(verdicts) / 2,
        "majority_of_present": present > 0,
        "require_all": present == len(verdicts),
    }[config.missing]
    if not known:
        return None
    if config.soft:
        return votes[True] / present
    if votes[True] == votes[False]:
        return {"missing": None, "rejected": 0.0, "accepted": 1.0}[config.ties]
    return float(votes[True] > votes[False])


@pytest.mark.parametrize(("missing", "ties", "soft"), POLICIES)
def test_labels_are_those_of_counting(missing, ties, soft):
    config = PanelConfig(soft=soft, missing=missing, ties=ties)
    for judges in (1, 2, 3, 4, 5):
        rows = list(itertools.product((True, False, None), repeat=judges))
        verdicts = np.array([[np.nan if vote is None else float(vote) for vote in row] for row in rows])
        found = [None if np.isnan(label) else label for label in panel_labels(verdicts, config)]
        assert found == [counted(row, config) for row in rows]


def ballots(verdicts, names, seed=0):
    items = tuple(Item(f"s{index // 4}", index % 4, silence=False) for index in range(len(verdicts)))
    return Ballots(items, tuple(names), np.asarray(verdicts, float))


def test_agreement_of_judges_is_scikit_learns_and_of_the_panel_the_decision_librarys():
    rng = np.random.default_rng(0)
    truth = rng.random(80) < 0.4
    verdicts = np.stack([np.where(rng.random(80) < 0.85, truth, ~truth) for _ in range(3)], axis=1)
    human = ballots(truth[:, None], ["annotator 1"])
    found = compare_judges({"panel": ballots(verdicts, "abc")}, human, resamples=50)
    pairs = {(row.judge, row.reference): row for row in found.pairs}
    majority = verdicts.sum(1) >= 2
    for judge, labels in (("panel", majority), ("a", verdicts[:, 0]), ("b", verdicts[:, 1])):
        [row] = [row for (name, other), row in pairs.items() if name == judge and "human" in other]
        assert row.items == 80 and row.streams == 20
        expected = {
            "raw": (labels == truth).mean(),
            "kappa": cohen_kappa_score(labels == 1, truth),
            "mcc": matthews_corrcoef(labels == 1, truth),
        }
        values = [interval.value for interval in row.measures.values()]
        for value in expected.values():
            assert min(abs(value - found) for found in values) < 1e-12
        assert row.constant == pytest.approx(max(truth.mean(), 1 - truth.mean()))
        assert row.sensitivity.value == pytest.approx(labels[truth].mean())
        assert row.specificity.value == pytest.approx(1 - labels[~truth].mean())
    counts = np.stack([3 - verdicts.sum(1), verdicts.sum(1)], axis=1)
    [panel] = [row for row in found.panels if row.panel == "panel"]
    expected = panel_intervals(counts, streams=np.arange(80) // 4, resamples=50)
    assert [interval.value for interval in panel.measures.values()] == [of.value for of in expected.values()]


def stream(name, proposals, votes=()):
    """A stream that proposes at the steps in `proposals`, with people's votes on each step's offer."""
    steps = tuple(
        Step(event=index, candidates=(Candidate(text="Fix it", logged=index in proposals, votes=votes),))
        for index in range(4)
    )
    return Stream(id=name, events=tuple(Event(time=float(i), text=f"e{i}") for i in range(4)), steps=steps)


def test_two_systems_under_one_panel():
    """F1 as ProactiveBench counts: an accepted proposal is right, an accepted silence too."""
    names = [f"s{index}" for index in range(6)]
    first, second = ([stream(name, made) for name in names] for made in ({0, 1, 2, 3}, {0, 1}))
    items, verdicts = [], []
    for name in names:
        for event in range(4):  # users would take up an offer at events 0 and 1, and want none at 2 and 3
            items += [Item(name, event, silence=True), Item(name, event, silence=False, text="Fix it")]
            verdicts += [[float(event > 1)], [float(event < 2)]]
    rater = Ballots(tuple(items), ("majority",), np.array(verdicts))
    done = [judged(deeds(system), rater) for system in (first, second)]
    row = compare_judged("panel", *done, resamples=50)
    assert row.steps == 24 and row.left_out == 0
    f1 = row.rates["f1"]
    assert (f1.first.value, f1.second.value) == pytest.approx((2 / 3, 1.0), abs=1e-7)
    assert f1.difference.value == pytest.approx(1 / 3, abs=1e-7)


def test_human_votes_are_ballots():
    found = human_ballots([stream("a", {0}, votes=(True, False)), stream("b", {0})])
    assert found.judges == ("annotator 1", "annotator 2")
    assert len(found.items) == 4 and {item.stream for item in found.items} == {"a"}
    np.testing.assert_array_equal(found.verdicts, [[1.0, 0.0]] * 4)


def test_the_truth_of_a_silence_is_the_opposite_of_the_verdict_on_it():
    """Two silences that a panel accepts are no missed offers; of two proposals it accepts one."""
    streams = [stream(f"s{index}", {2, 3}) for index in range(6)]
    items = [
        Item(one.id, event, silence=event < 2, text=None if event < 2 else "Fix it")
        for one in streams
        for event in range(4)
    ]
    rater = Ballots(tuple(items), ("majority",), np.array([[float(item.event < 3)] for item in items]))
    rows = correct(streams, {"panel": rater}, rater, resamples=50)
    [row] = [row for row in rows if row.method == "judge_only"]
    assert row.steps == 24 and not row.problem
    assert row.numbers["prevalence"].value == pytest.approx(0.25)
    assert row.numbers["cost"].value == pytest.approx(0.25)
