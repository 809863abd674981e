"""The text calibrator: the same numbers as scikit-learn's, honest on held-out streams, strict about its file."""

import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from prism_jax.decision.calibration import fit_platt, negative_log_likelihood
from prism_jax.labelling.teacher.text_calibrator import candidate_fields, read_text_calibrator, step_fields, terms
from prism_jax.labelling.teacher.text_fit import (
    Example,
    _folds,
    accept_examples,
    fit_text_calibrator,
    fit_text_map,
    need_examples,
)
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_candidates

NOISE = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]


def p_true(urgent, apt):
    return 0.15 + 0.7 * urgent, 0.2 + 0.6 * apt


def stream(number, signal=True, steps=12):
    """Need follows a word of a slow field, acceptance a word of the offer, both with known probabilities."""
    rng = np.random.default_rng(number)
    drawn = []
    for i in range(steps):
        urgent, apt = rng.random(2) < 0.5
        p_need, p_accept = p_true(*((urgent, apt) if signal else rng.random(2) < 0.5))
        noise = " ".join(rng.choice(NOISE, 4))
        offer = f"offer a {'fitting' if apt else 'random'} thing, {' '.join(rng.choice(NOISE, 3))}"
        answer = dict(zip(RESPONSE_KEYS, ("To work.", "Hm.", offer, "Shall I?"), strict=True))
        candidate = Candidate(text=offer, response=json.dumps(answer), y_accept=float(rng.random() < p_accept))
        rationale = {"if_silent": f"{'deadline' if urgent else 'nothing'} {noise}", "risk": noise}
        need = float(rng.random() < p_need)
        drawn.append(Step(event=i, candidates=(candidate,), rationale=rationale, y_need=need))
    return Stream(id=f"s{number}", events=(Event(time=0.0, text="x"),) * steps, steps=tuple(drawn))


STREAMS = [stream(number) for number in range(40)]
HELD = [stream(number) for number in range(100, 140)]


@pytest.fixture(scope="module")
def fitted():
    return fit_text_calibrator(STREAMS)


@pytest.mark.slow
def test_numpy_alone_gives_the_scores_of_scikit_learn(fitted):
    """An independent pipeline with the chosen penalty, fitted on all rows."""
    rows = [step_fields(step) for stream in STREAMS for step in stream.steps]
    y = [step.y_need for stream in STREAMS for step in stream.steps]
    vectorizer = TfidfVectorizer(analyzer=terms, sublinear_tf=True, min_df=2)
    model = LogisticRegression(C=fitted.need.regularisation, max_iter=2000).fit(vectorizer.fit_transform(rows), y)
    held = [step_fields(step) for stream in HELD for step in stream.steps]
    held += [{}, {"risk": "never seen"}, {"no such field": "alpha"}]
    np.testing.assert_allclose(fitted.need.scores(held), model.decision_function(vectorizer.transform(held)), atol=2e-3)


@pytest.mark.slow
def test_it_is_calibrated_on_streams_that_it_has_not_seen_and_better_than_the_base_rate(fitted):
    """The best map of its log-odds on 200 further streams is nearly the identity.

    A map fitted on the scores of the rows of the fit itself is overconfident there.
    """
    further = [stream(number) for number in range(1000, 1200)]
    examples = {"need": (list(need_examples(STREAMS)), list(need_examples(further)))}
    examples["accept"] = list(accept_examples(STREAMS)), list(accept_examples(further))
    for name, (own, held) in examples.items():
        one = getattr(fitted, name)
        y, y_own = (np.array([row.label for row in rows]) for rows in (held, own))
        z, z_own = (one.scores([row.fields for row in rows]) for rows in (held, own))
        p = one([row.fields for row in held])
        found = fit_platt(p, y)
        assert 0.8 < found.scale < 1.25
        assert abs(found.bias) < 0.25
        naive = fit_platt(1 / (1 + np.exp(-z_own)), y_own)
        assert fit_platt(naive(1 / (1 + np.exp(-z))), y).scale < 0.75
        assert negative_log_likelihood(p, y) < negative_log_likelihood(np.full_like(p, y.mean()), y) - 0.1


def test_without_a_signal_it_is_close_to_the_base_rate():
    """Labels independent of the texts: scores on the rows of the fit would look confident, held-out ones do not."""
    found = fit_text_map(list(need_examples([stream(number, signal=False) for number in range(20)])))
    p = found([step_fields(step) for stream in HELD for step in stream.steps])
    assert np.abs(p - found.base_rate).max() < 0.2
    assert p.std() < 0.06


def test_given_probabilities_stay_and_steps_without_texts_stay_empty(fitted):
    given = map_candidates(STREAMS[0], lambda c: dataclasses.replace(c, teacher_accept=0.125))
    given = dataclasses.replace(given, steps=tuple(dataclasses.replace(s, teacher_need=0.25) for s in given.steps))
    bare = dataclasses.replace(given, id="bare", steps=(Step(event=0),))
    assert fitted.fill([given, bare]) == [given, bare]
    (half,) = fitted.fill([dataclasses.replace(given, steps=(dataclasses.replace(given.steps[0], teacher_need=None),))])
    assert half.steps[0].candidates == given.steps[0].candidates
    assert half.steps[0].teacher_need == fitted.need([step_fields(given.steps[0])])[0]


def test_labels_decide_nothing_when_it_is_applied(fitted):
    def turned(candidate):
        return dataclasses.replace(candidate, y_accept=1 - candidate.y_accept)

    before, after = fitted.fill(HELD[:3]), fitted.fill([map_candidates(stream, turned) for stream in HELD[:3]])
    assert [map_candidates(stream, turned) for stream in before] == after


def test_an_agent_that_only_gives_text_is_read_by_its_fields(fitted):
    low, high = fitted.accept([{"Proactive Task": "offer a random thing"}, {"Proactive Task": "offer a fitting thing"}])
    assert low < 0.35
    assert high > 0.65


def test_soft_labels_count_as_shares_of_both_classes():
    rows = [Example({"risk": word}, y, f"s{i}") for i in range(30) for word, y in (("high", 0.8), ("low", 0.3))]
    hard = [
        Example(row.fields, label, row.stream)
        for row in rows
        for label in (1.0, 0.0)
        for _ in range(round(10 * (row.label if label else 1 - row.label)))
    ]
    soft = fit_text_map(rows)
    p = soft([{"risk": "high"}, {"risk": "low"}])
    np.testing.assert_allclose(p, [0.8, 0.3], atol=0.03)
    np.testing.assert_allclose(fit_text_map(hard)([{"risk": "high"}, {"risk": "low"}]), p, atol=0.03)


def test_streams_are_never_divided_between_folds():
    streams = np.repeat([f"s{i}" for i in range(7)], [9, 1, 5, 5, 2, 8, 3])
    folds = _folds(streams)
    assert len(np.unique(folds)) == 5
    assert all(len(np.unique(folds[streams == name])) == 1 for name in np.unique(streams))


def test_the_fields_are_those_of_the_step_and_of_the_response():
    step = Step(
        event=0,
        rationale={"risk": "low", "own": "not ours"},
        candidates=(
            Candidate(text="Mend it.", response=json.dumps({"Purpose": "To work.", "Thoughts": "Secret."})),
            Candidate(text="Explain it.", response="Shall I explain it?"),
        ),
    )
    first, second = (candidate_fields(step, candidate) for candidate in step.candidates)
    assert first == {"risk": "low", "Purpose": "To work.", "Proactive Task": "Mend it."}
    assert second == {"risk": "low", "Proactive Task": "Explain it.", "Response": "Shall I explain it?"}
    assert step_fields(step) == {
        "risk": "low",
        "Purpose": "To work.",
        "Proactive Task": "Mend it.\nExplain it.",
        "Response": "Shall I explain it?",
    }
    assert terms({"risk": "So low!"}) == ["risk:", "risk:so", "risk:low", "risk:so low"]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "need: found none, expected judged rows with labels in [0, 1] of both classes"),
        ([Example({"risk": "a"}, 1.0, "s")] * 3, "need: found a mean of 1 over 3 rows, expected judged rows with"),
        ([Example({"risk": "a"}, y, "s") for y in (0.0, 1.0)], "need: found rows of one stream, expected at least two"),
    ],
)
def test_what_cannot_be_fitted_is_refused(examples, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        fit_text_map(examples, "need")


def test_a_saved_calibrator_gives_the_same_probabilities(fitted, tmp_path):
    fitted.save(tmp_path / "text.json")
    assert read_text_calibrator(tmp_path / "text.json").fill(HELD) == fitted.fill(HELD)


def test_applying_it_loads_no_scikit_learn():
    code = "from prism_jax.labelling.teacher import text_calibrator, text_fit; import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"sklearn", "flax", "torch"} & set(loaded)
