"""The loss of each pathway equals a NumPy version computed from the streams, the teacher and the logits."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from pathway_streams import STREAMS, TEMPLATE, Example, config, each_step, supervised
from whole_objective import objective

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.training.input_pipeline import pack_split
from prism_jax.training.pathways.supervision import supervise
from prism_jax.training.run_config import PackingConfig

POINT = OperatingPoint()
H = 0.1


class Row(NamedTuple):
    """The variables of the formulas for one step of the simulator, which has one candidate."""

    z_need: float
    z_accept: float
    y_need: float
    y_accept: float
    made: bool
    e: float
    q_need: float
    q_accept: float
    tokens: tuple  # (log-probabilities, target) of each text token, in order
    slow_tokens: int  # of the slow pass that a fast branch may trigger; 0 on a slow branch

    @property
    def score(self):
        seen = self.made * (self.y_accept - (self.q_accept - self.y_accept) ** 2)
        return seen - (self.q_need - self.y_need) ** 2


def read(streams, *, answers=False):
    """Returns supervised streams as an example with given hidden states, and their rows with the resulting logits."""
    example = Example.of(streams)
    z_need, z_accept = example.logits(example.batch.need_slot), example.logits(example.batch.accept_slot)
    log_probs, rows = example.log_probs(), []
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
            written = sum(len(field.text) for field in TEMPLATE.slow(step.rationale))
            slow_tokens = 0 if getattr(step, "slow", False) else written
            rows.append(Row(z_need[i, j], z_accept[i, j], step.y_need, accept, *log, text, slow_tokens))
    assert sum(len(row.tokens) for row in rows) == example.batch.response_weight.sum()
    return example, rows


def bce(z, y):
    return np.logaddexp(0, z) - y * z


def mean(values):
    return float(np.mean(list(values)))


def nll(rows):
    return [-log_p[token] for row in rows for log_p, token in row.tokens]


def found_terms(example, loss):
    total, found = objective(example.params, example.batch, example.slots, loss, POINT, H)
    return float(total), {name: float(value) for name, value in found.items()}


def decision_terms(rows):
    """Computes L_need, L_acc (SNIPS) and L_burden (docs/maths.md, section 4)."""
    w = np.array([min(row.made / max(row.e, 0.05), 20) for row in rows])
    accept = np.array([bce(row.z_accept, row.y_accept) for row in rows])
    g = [1 / (1 + np.exp(-(row.z_accept - np.logaddexp(0, -row.z_need) - np.log(0.5)) / H)) for row in rows]
    cost = [g * (1 - row.y_accept) + 2.0 * (1 - g) * row.y_need * row.y_accept for g, row in zip(g, rows, strict=True)]
    return {
        "need": mean(bce(row.z_need, row.y_need) for row in rows),
        "accept": (w * accept).sum() / w.sum(),
        "burden": (w * cost).sum() / w.sum(),
    }


def slow_term(rows, margin=0.1, width=0.02):
    """Computes the slow pass's part of L_burden: 1e-4 per token, over fast branches (docs/maths.md, section 4)."""
    fast = [row for row in rows if row.slow_tokens]
    p_need, p_accept = (1 / (1 + np.exp(-np.array([getattr(r, z) for r in fast]))) for z in ("z_need", "z_accept"))
    m = 1 / (1 + np.exp(-(margin - np.abs(p_accept - 1 / (1 + 2 * p_need))) / width))
    return 1e-4 * float(np.mean(m * [row.slow_tokens for row in fast]))


def best_of_each_stratum(rows, keep):
    """Returns the indices of the rows that curation should keep: the best of each stratum, by largest remainders."""
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


def test_the_default_pathway_leaves_the_objective_unchanged():
    found = supervised()
    assert found.streams == STREAMS
    assert found.loss == dataclasses.replace(tiny.CONFIG.loss, slow=0.0)  # it trains no slow branches
    for row in pack_split(found.streams, TEMPLATE, PackingConfig(512)).rows:
        np.testing.assert_array_equal(row.need_target, row.y_need)
        np.testing.assert_array_equal(row.accept_target, row.y_accept)
        assert (row.response_factor == row.response_weight).all()


def test_sft_is_plain_cross_entropy_at_the_slots_and_on_the_text():
    found = supervised(name="sft")
    example, rows = read(found.streams)
    total, terms = found_terms(example, found.loss)
    assert terms["need"] == pytest.approx(mean(bce(row.z_need, row.y_need) for row in rows), rel=1e-5)
    accept = mean(bce(row.z_accept, row.y_accept) for row in rows if row.made)
    assert terms["accept"] == pytest.approx(accept, rel=1e-5)
    assert total == pytest.approx(terms["need"] + accept + mean(nll(rows)), rel=1e-5)


def test_sft_hardens_soft_labels():
    """A label of 2/3 counts as yes."""

    def soften(step):
        return dataclasses.replace(step, y_need=abs(step.y_need - 1 / 3))

    soft = each_step(STREAMS, soften)
    example, rows = read(supervised(soft, name="sft").streams)
    _, terms = found_terms(example, supervised(name="sft").loss)
    assert terms["need"] == pytest.approx(mean(bce(row.z_need, row.y_need > 0.5) for row in rows), rel=1e-5)


@pytest.mark.slow
def test_rdc_sft_uses_the_best_rows_and_the_decision_losses():
    everything = [row for row in read(STREAMS)[1]]
    kept = best_of_each_stratum(everything, 0.6)
    found = supervised(name="rdc_sft", keep=0.6)
    example, rows = read(found.streams)
    labels = [(row.y_need, row.y_accept, row.e, row.q_need, row.q_accept) for row in rows]
    expected = [everything[i] for i in kept]
    assert labels == [(row.y_need, row.y_accept, row.e, row.q_need, row.q_accept) for row in expected]
    assert 0 < len(labels) < len(everything)
    total, terms = found_terms(example, found.loss)
    for name, value in decision_terms(rows).items():
        assert terms[name] == pytest.approx(value, rel=1e-4), name
    parts = terms["need"] + terms["accept"] + 0.1 * terms["burden"] + mean(nll(rows))
    assert total == pytest.approx(parts, rel=1e-5)


def test_schema_sft_trains_only_on_the_teachers_text_and_answers():
    found = supervised(name="schema_sft", slow=0.5)
    example, rows = read(found.streams, answers=True)
    total, _ = found_terms(example, found.loss)
    assert total == pytest.approx(mean(nll(rows)), rel=1e-5)
    # None of the labels affects the loss.
    other = jax.tree.map(lambda leaf: 1 - leaf, example.batch._replace(row=example.batch.row))
    flipped = example.batch._replace(y_need=other.y_need, need_target=other.need_target, logged=other.logged)
    assert found_terms(dataclasses.replace(example, batch=flipped), found.loss)[0] == pytest.approx(total, rel=1e-6)


@pytest.mark.slow
def test_dft_weights_each_token_of_text_by_its_probability():
    found = supervised(name="dft", slow=0.5)
    example, rows = read(found.streams)
    _, terms = found_terms(example, found.loss)
    assert terms["response"] == pytest.approx(mean(np.exp(-loss) * loss for loss in nll(rows)), rel=1e-5)
    expected = decision_terms(rows)
    expected["burden"] += slow_term(rows)
    for name, value in expected.items():
        assert terms[name] == pytest.approx(value, rel=1e-4), name


@pytest.mark.slow
def test_the_gradient_of_dft_is_that_of_the_negative_probability():
    found = supervised(name="dft")
    example, _ = read(found.streams)
    batch = example.batch

    def response(params):
        return objective(params, batch, example.slots, found.loss, POINT, H)[1]["response"]

    def negative_probability(params):
        states = jnp.take_along_axis(params["hidden"], batch.response_source[..., None], axis=1)
        p = jax.nn.softmax(states @ params["embedding"].T)
        target = jnp.take_along_axis(p, batch.response_target[..., None], axis=-1)[..., 0]
        return -jnp.sum(target * batch.response_weight) / jnp.sum(batch.response_weight)

    for name, gradient in jax.grad(response)(example.params).items():
        expected = np.asarray(jax.grad(negative_probability)(example.params)[name])
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("advantage", [False, True])
def test_weighted_sft_weights_text_by_its_reward_over_the_training_sets_mean(advantage):
    found = supervised(name="weighted_sft", slow=0.3, beta=0.7, advantage=advantage)
    example, rows = read(found.streams)
    _, terms = found_terms(example, found.loss)
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


def test_at_high_temperature_rewards_have_no_effect():
    hot, plain = supervised(name="weighted_sft", beta=1e9, slow=0.3), supervised(name="rdc_sft", slow=0.3)
    totals = [found_terms(Example.of(found.streams), found.loss)[0] for found in (hot, plain)]
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)


def test_mixing_the_teacher_into_targets_changes_the_cross_entropy_but_not_the_burden():
    found = supervised(alpha=0.4)
    example, rows = read(found.streams)
    _, terms = found_terms(example, found.loss)
    need = mean(bce(row.z_need, 0.6 * row.y_need + 0.4 * row.q_need) for row in rows)
    assert terms["need"] == pytest.approx(need, rel=1e-5)
    w = np.array([row.made / row.e for row in rows])
    accept = np.array([bce(row.z_accept, 0.6 * row.y_accept + 0.4 * row.q_accept) for row in rows])
    assert terms["accept"] == pytest.approx((w * accept).sum() / w.sum(), rel=1e-5)
    assert terms["burden"] == pytest.approx(decision_terms(rows)["burden"], rel=1e-4)


def test_the_doubly_robust_loss_takes_its_prediction_from_other_streams():
    loss = dataclasses.replace(tiny.CONFIG.loss, estimator="dr")
    found = supervise(STREAMS, config(loss=loss), TEMPLATE)
    example, rows = read(found.streams)
    _, terms = found_terms(example, found.loss)
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


@pytest.mark.slow
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
def test_only_slots_and_text_are_trained(pathway):
    """No gradient reaches a hidden state that predicts a token of the prompt, of an offer or of the template."""
    found = supervised(**pathway)
    example, _ = read(found.streams, answers=pathway.get("name") == "schema_sft")

    def loss(hidden):
        return objective({**example.params, "hidden": hidden}, example.batch, example.slots, found.loss, POINT, H)[0]

    reached = np.abs(np.asarray(jax.grad(loss)(example.params["hidden"]))).max(axis=-1) > 0
    allowed = np.zeros_like(reached)
    batch = jax.tree.map(np.asarray, example.batch)
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
            allowed[row, batch.accept_slot[row][batch.slow_tokens[row] > 0]] = True  # the slow pass needs no label
    np.testing.assert_array_equal(reached, allowed)
