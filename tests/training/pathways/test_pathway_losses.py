"""Each pathway's loss, written out in NumPy from the streams, the teacher and the logits."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from pathway_streams import STREAMS, TEMPLATE, Lesson, config, each_step, taught

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.training.input.data import pack_split
from prism_jax.training.optimization.objective import objective
from prism_jax.training.pathways.supervision import supervise

POINT = OperatingPoint()
H = 0.1


class Row(NamedTuple):
    """A step of the simulator, which has one candidate, as the formulas see it."""

    z_need: float
    z_accept: float
    y_need: float
    y_accept: float
    made: bool
    e: float
    q_need: float
    q_accept: float
    tokens: tuple  # (log-probabilities, target) of its text, in order

    @property
    def score(self):
        seen = self.made * (self.y_accept - (self.q_accept - self.y_accept) ** 2)
        return seen - (self.q_need - self.y_need) ** 2


def read(streams, *, answers=False):
    """The rows of taught streams, their logits from given hidden states; and those states."""
    lesson = Lesson.of(streams)
    z_need, z_accept = lesson.logits(lesson.batch.need_slot), lesson.logits(lesson.batch.accept_slot)
    log_probs, rows = lesson.log_probs(), []
    for i, stream in enumerate(streams):
        places = iter(range(log_probs.shape[1]))
        for j, step in enumerate(stream.steps):
            (offer,) = step.candidates
            ids = []
            if getattr(step, "slow", False):
                ids += [token for field in TEMPLATE.slow(step.rationale) for token in field.text]
            if answers:
                ids += [TEMPLATE.yes if q >= 0.5 else TEMPLATE.no for q in (step.teacher_need, offer.teacher_accept)]
            if offer.response is not None:
                ids += TEMPLATE.response(offer.response)[1]
            text = tuple((log_probs[i, next(places)], token) for token in ids)
            made = bool(offer.logged)
            accept = offer.y_accept if made else 0.0
            log = (made, offer.propensity, step.teacher_need, offer.teacher_accept)
            rows.append(Row(z_need[i, j], z_accept[i, j], step.y_need, accept, *log, text))
    assert sum(len(row.tokens) for row in rows) == lesson.batch.response_weight.sum()
    return lesson, rows


def bce(z, y):
    return np.logaddexp(0, z) - y * z


def mean(values):
    return float(np.mean(list(values)))


def nll(rows):
    return [-log_p[token] for row in rows for log_p, token in row.tokens]


def found_terms(lesson, loss):
    total, found = objective(lesson.params, lesson.batch, lesson.slots, loss, POINT, H)
    return float(total), {name: float(value) for name, value in found.items()}


def decision_terms(rows):
    """L_need, L_acc (SNIPS) and L_burden of docs/maths.md, section 4."""
    w = np.array([min(row.made / max(row.e, 0.05), 20) for row in rows])
    accept = np.array([bce(row.z_accept, row.y_accept) for row in rows])
    g = [1 / (1 + np.exp(-(row.z_accept - np.logaddexp(0, -row.z_need) - np.log(0.5)) / H)) for row in rows]
    cost = [g * (1 - row.y_accept) + 2.0 * (1 - g) * row.y_need * row.y_accept for g, row in zip(g, rows, strict=True)]
    return {
        "need": mean(bce(row.z_need, row.y_need) for row in rows),
        "accept": (w * accept).sum() / w.sum(),
        "burden": (w * cost).sum() / w.sum(),
    }


def best_of_each_stratum(rows, keep):
    """Indices of the rows that curation keeps: sorted by hand, shares by largest remainders."""
    names = [(row.y_need, row.y_accept) if row.made else "not offered" for row in rows]
    total, kept = int(np.floor(keep * len(rows) + 0.5)), []
    groups = {name: [i for i in range(len(rows)) if names[i] == name] for name in dict.fromkeys(names)}
    quota = {name: total * len(group) / len(rows) for name, group in groups.items()}
    whole = {name: int(share) for name, share in quota.items()}
    left = sorted(quota, key=lambda name: whole[name] - quota[name])[: total - sum(whole.values())]
    for name, group in groups.items():
        best = sorted(group, key=lambda i: -rows[i].score)
        kept += best[: whole[name] + (name in left)]
    return sorted(kept)


def test_the_default_pathway_is_the_objective_as_it_is():
    found = taught()
    assert found.streams == STREAMS
    assert found.loss == tiny.CONFIG.loss
    for row in pack_split(found.streams, TEMPLATE, 512).rows:
        np.testing.assert_array_equal(row.need_target, row.y_need)
        np.testing.assert_array_equal(row.accept_target, row.y_accept)
        assert (row.response_factor == row.response_weight).all()


def test_sft_is_plain_cross_entropy_at_the_slots_and_on_the_text():
    found = taught(name="sft")
    lesson, rows = read(found.streams)
    total, terms = found_terms(lesson, found.loss)
    assert terms["need"] == pytest.approx(mean(bce(row.z_need, row.y_need) for row in rows), rel=1e-5)
    accept = mean(bce(row.z_accept, row.y_accept) for row in rows if row.made)
    assert terms["accept"] == pytest.approx(accept, rel=1e-5)
    assert total == pytest.approx(terms["need"] + accept + mean(nll(rows)), rel=1e-5)


def test_sft_hardens_soft_labels():
    """Votes of two in three count as yes."""

    def soften(step):
        return dataclasses.replace(step, y_need=abs(step.y_need - 1 / 3))

    soft = each_step(STREAMS, soften)
    lesson, rows = read(taught(soft, name="sft").streams)
    _, terms = found_terms(lesson, taught(name="sft").loss)
    assert terms["need"] == pytest.approx(mean(bce(row.z_need, row.y_need > 0.5) for row in rows), rel=1e-5)


def test_rdc_sft_takes_the_best_rows_and_the_decision_losses():
    everything = [row for row in read(STREAMS)[1]]
    kept = best_of_each_stratum(everything, 0.6)
    found = taught(name="rdc_sft", keep=0.6)
    lesson, rows = read(found.streams)
    labels = [(row.y_need, row.y_accept, row.e, row.q_need, row.q_accept) for row in rows]
    expected = [everything[i] for i in kept]
    assert labels == [(row.y_need, row.y_accept, row.e, row.q_need, row.q_accept) for row in expected]
    assert 0 < len(labels) < len(everything)
    total, terms = found_terms(lesson, found.loss)
    for name, value in decision_terms(rows).items():
        assert terms[name] == pytest.approx(value, rel=1e-4), name
    parts = terms["need"] + terms["accept"] + 0.1 * terms["burden"] + mean(nll(rows))
    assert total == pytest.approx(parts, rel=1e-5)


def test_schema_sft_trains_on_the_teachers_text_and_answers_alone():
    found = taught(name="schema_sft", slow=0.5)
    lesson, rows = read(found.streams, answers=True)
    total, _ = found_terms(lesson, found.loss)
    assert total == pytest.approx(mean(nll(rows)), rel=1e-5)
    # Not one of the labels matters.
    other = jax.tree.map(lambda leaf: 1 - leaf, lesson.batch._replace(row=lesson.batch.row))
    flipped = lesson.batch._replace(y_need=other.y_need, need_target=other.need_target, logged=other.logged)
    assert found_terms(dataclasses.replace(lesson, batch=flipped), found.loss)[0] == pytest.approx(total, rel=1e-6)


def test_dft_weights_each_token_of_text_by_its_probability():
    found = taught(name="dft", slow=0.5)
    lesson, rows = read(found.streams)
    _, terms = found_terms(lesson, found.loss)
    assert terms["response"] == pytest.approx(mean(np.exp(-loss) * loss for loss in nll(rows)), rel=1e-5)
    for name, value in decision_terms(rows).items():
        assert terms[name] == pytest.approx(value, rel=1e-4), name


def test_the_gradient_of_dft_is_that_of_the_negative_probability():
    found = taught(name="dft")
    lesson, _ = read(found.streams)
    batch = lesson.batch

    def response(params):
        return objective(params, batch, lesson.slots, found.loss, POINT, H)[1]["response"]

    def negative_probability(params):
        states = jnp.take_along_axis(params["hidden"], batch.response_source[..., None], axis=1)
        p = jax.nn.softmax(states @ params["embedding"].T)
        target = jnp.take_along_axis(p, batch.response_target[..., None], axis=-1)[..., 0]
        return -jnp.sum(target * batch.response_weight) / jnp.sum(batch.response_weight)

    for name, gradient in jax.grad(response)(lesson.params).items():
        expected = np.asarray(jax.grad(negative_probability)(lesson.params)[name])
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("advantage", [False, True])
def test_weighted_sft_weights_text_by_its_reward_over_the_training_sets_mean(advantage):
    found = taught(name="weighted_sft", slow=0.3, beta=0.7, advantage=advantage)
    lesson, rows = read(found.streams)
    _, terms = found_terms(lesson, found.loss)
    domains = np.array([stream.domain for stream in found.streams for _ in stream.steps])
    responses = [offer.response for s in found.streams for step in s.steps for offer in step.candidates]
    lengths = [0 if text is None else len(TEMPLATE.response(text)[1]) for text in responses]
    text = np.array([bool(row.tokens) for row in rows])
    reward = np.array(
        [row.score - row.made * (1 - row.y_accept) - 1e-4 * n for row, n in zip(rows, lengths, strict=True)]
    )
    mean_of = {domain: reward[text & (domains == domain)].mean() for domain in set(domains[text])}
    value = np.array([mean_of.get(domain, 0.0) for domain in domains])
    weight = np.minimum(np.exp((reward - value) / 0.7), 20) if advantage else np.exp(reward / 0.7)
    weight /= weight[text].mean()
    expected = sum(w * -log_p[token] for w, row in zip(weight, rows, strict=True) for log_p, token in row.tokens)
    assert terms["response"] == pytest.approx(expected / len(nll(rows)), rel=1e-5)
    assert np.ptp(weight[text]) > 0.1
    ess = weight[text].sum() ** 2 / (weight[text] ** 2).sum()
    assert found.facts["weights"] == f"effective sample size {ess:,.0f} of {text.sum()} rows with text"


def test_rewards_at_high_temperature_weight_nothing():
    hot, plain = taught(name="weighted_sft", beta=1e9, slow=0.3), taught(name="rdc_sft", slow=0.3)
    totals = [found_terms(Lesson.of(found.streams), found.loss)[0] for found in (hot, plain)]
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)


def test_targets_between_label_and_teacher_move_the_cross_entropy_and_not_the_burden():
    found = taught(alpha=0.4)
    lesson, rows = read(found.streams)
    _, terms = found_terms(lesson, found.loss)
    need = mean(bce(row.z_need, 0.6 * row.y_need + 0.4 * row.q_need) for row in rows)
    assert terms["need"] == pytest.approx(need, rel=1e-5)
    w = np.array([row.made / row.e for row in rows])
    accept = np.array([bce(row.z_accept, 0.6 * row.y_accept + 0.4 * row.q_accept) for row in rows])
    assert terms["accept"] == pytest.approx((w * accept).sum() / w.sum(), rel=1e-5)
    assert terms["burden"] == pytest.approx(decision_terms(rows)["burden"], rel=1e-4)


def test_the_doubly_robust_loss_takes_its_prediction_from_other_streams():
    loss = dataclasses.replace(tiny.CONFIG.loss, estimator="dr")
    found = supervise(STREAMS, config(loss=loss), TEMPLATE)
    lesson, rows = read(found.streams)
    _, terms = found_terms(lesson, found.loss)
    which = [(i, stream.domain) for i, stream in enumerate(found.streams) for _ in stream.steps]
    expected = []
    for (i, domain), row in zip(which, rows, strict=True):
        others = [r for (k, d), r in zip(which, rows, strict=True) if d == domain and k % 5 != i % 5 and r.made]
        others = others or [r for (k, _), r in zip(which, rows, strict=True) if k % 5 != i % 5 and r.made]
        mu = sum(r.y_accept / r.e for r in others) / sum(1 / r.e for r in others)
        label = mu + row.made / row.e * (row.y_accept - mu)
        penalty = max(0, abs(row.z_accept) - 10) ** 2 if not 0 <= label <= 1 else 0
        expected.append(bce(row.z_accept, label) + penalty)
    assert terms["accept"] == pytest.approx(mean(expected), rel=1e-5)
    assert 0 < terms["accept_outside_share"] < 1


@pytest.mark.parametrize(
    "pathway",
    [
        {},
        {"name": "schema_sft", "slow": 0.5},
        *(
            pytest.param(pathway, marks=pytest.mark.slow)
            for pathway in ({"name": "sft"}, {"name": "rdc_sft", "slow": 0.5}, {"name": "dft"})
        ),
    ],
    ids=lambda pathway: pathway.get("name", "joint"),
)
def test_nothing_but_slots_and_text_is_trained(pathway):
    """No gradient reaches a state that predicts a token of the prompt, of an offer or of the template."""
    found = taught(**pathway)
    lesson, _ = read(found.streams, answers=pathway.get("name") == "schema_sft")

    def loss(hidden):
        return objective({**lesson.params, "hidden": hidden}, lesson.batch, lesson.slots, found.loss, POINT, H)[0]

    reached = np.abs(np.asarray(jax.grad(loss)(lesson.params["hidden"]))).max(axis=-1) > 0
    allowed = np.zeros_like(reached)
    batch = jax.tree.map(np.asarray, lesson.batch)
    for row in range(len(allowed)):
        for source, target in zip(batch.response_source[row], batch.response_target[row], strict=True):
            follows = source + 1 < len(allowed[row]) and batch.tokens[row, source + 1] == target
            last = target == TEMPLATE.response("a")[1][-1]
            answer = target in (TEMPLATE.yes, TEMPLATE.no)
            assert follows or last or answer or not target
        allowed[row, batch.response_source[row][batch.response_weight[row] > 0]] = True
        if pathway.get("name") != "schema_sft":
            allowed[row, batch.need_slot[row][batch.need_weight[row] > 0]] = True
            allowed[row, batch.accept_slot[row][batch.accept_weight[row] * batch.logged[row] > 0]] = True
    np.testing.assert_array_equal(reached, allowed)
