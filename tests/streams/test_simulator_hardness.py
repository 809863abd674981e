"""The simulator is hard enough for a meaningful test: good decisions require the order of events."""

import numpy as np
import pytest
from simulated_steps import draw, table

C_FA, C_FN = 1.0, 2.0


def expected_cost(offer, t):
    """Realised cost of decisions under the true probabilities (Proposition 1)."""
    return np.where(offer, C_FA * (1 - t.p_accept), C_FN * t.p_both).mean()


def decisions_of_linear_models(train, test, texts):
    """Yields decisions of logistic regressions on bags of words on the test steps, for each fit and penalty."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    words = CountVectorizer(token_pattern=r"\S+")
    x = words.fit_transform(texts(train)).astype(float)
    x_test = words.transform(texts(test)).astype(float)
    t = table(train)
    gain = C_FN * t.need * t.accept - C_FA * (1 - t.accept)
    for penalty in (0.01, 0.1, 1.0):

        def fit(label, weight, penalty=penalty):
            model = LogisticRegression(C=penalty, max_iter=1000)
            used = weight > 0
            return model.fit(x[used], label[used], sample_weight=weight[used]).predict_proba(x_test)[:, 1]

        p_need, p_accept = (fit(label, np.ones_like(label)) for label in (t.need, t.accept))
        yield C_FA * (1 - p_accept) <= C_FN * p_need * p_accept  # both signals, through the gate
        yield fit(gain > 0, np.abs(gain)) > 0.5  # the decision itself, weighted by its cost


def closed_by_linear_models(train, test, texts):
    """How much of the gap between constant and Bayes decisions each of the linear models closes."""
    t = table(test)
    bayes = expected_cost(C_FA * (1 - t.p_accept) <= C_FN * t.p_both, t)
    constant = min(expected_cost(np.full(len(t.need), offer), t) for offer in (True, False))
    costs = [expected_cost(offer, t) for offer in decisions_of_linear_models(train, test, texts)]
    assert len(costs) == 6
    return [(constant - cost) / (constant - bayes) for cost in costs]


def last_event(streams):
    return [stream.events[step.event].text for stream in streams for step in stream.steps]


def whole_history(streams):
    return [" ".join(e.text for e in s.events[: step.event + 1]) for s in streams for step in s.steps]


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "most"), [(last_event, 0.50), (whole_history, 0.65)])
def test_counting_words_does_not_suffice(texts, most):
    train, test = draw(3000, "always"), draw(3000, "always", first=3000)
    closed = closed_by_linear_models(train, test, texts)
    assert 0.1 < max(closed) <= most, closed


@pytest.mark.slow
def test_bayes_decisions_beat_constant_ones_and_offer_sometimes():
    t = table(draw(3000, "always", first=3000))
    offer = C_FA * (1 - t.p_accept) <= C_FN * t.p_both
    constant = min(expected_cost(np.full(len(offer), always), t) for always in (True, False))
    assert expected_cost(offer, t) <= 0.60 * constant
    assert 0.25 <= offer.mean() <= 0.75
    # The realised cost on drawn labels agrees with the expected cost under the true probabilities.
    realised = np.where(offer, C_FA * (1 - t.accept), C_FN * t.need * t.accept)
    assert abs(realised.mean() - expected_cost(offer, t)) < 3 * realised.std() / len(realised) ** 0.5
