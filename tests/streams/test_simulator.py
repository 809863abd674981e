"""The simulator's labels, log and text follow its true probabilities, and streams are the same on every machine."""

import dataclasses
import hashlib
import json
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulated_steps import CONFIG, chance, draw, patterns, table
from test_switches import CONFIG as SWITCHES
from test_switches import read as read_switches

from prism_jax.streams import simulator_text, switches
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.outcomes import ON_CALL_SHARE, PROPENSITY
from prism_jax.streams.simulator import (
    ACCEPT,
    KINDS,
    NEED,
    NEXT_FREE,
    NEXT_STUCK,
    STAYS,
    SimulatorConfig,
    Situation,
    names,
    simulate,
    subject,
    truth,
)


def read(stream):
    """Situation and open items at each step, derived from the text alone."""
    (persona,) = (name for name, texts in simulator_text.ARRIVALS.items() if stream.events[0].text in texts)
    open_items, quiet = [], False
    for event in stream.events[1:]:
        known = patterns(simulator_text, stream.domain)
        (match, kind), *others = [(m, kind) for pattern, kind in known if (m := pattern.fullmatch(event.text))]
        assert not others, f"{event.text!r} can be read in two ways"
        item = match.groupdict().get("item")
        if kind == "trouble" and item not in open_items:
            open_items.append(item)
        elif kind == "solved" and item in open_items:
            open_items.remove(item)
        elif kind in ("mute", "unmute"):
            quiet = kind == "mute"
        yield Situation(persona, kind, bool(open_items), quiet), tuple(open_items)


# The population of streams.

of_both = pytest.mark.parametrize("config", [CONFIG, SWITCHES], ids=["items", "switches"])
DIGESTS = {
    "items": "69c945e5e9f5b9f7513e02dbdae24b063a59678fe73d9cc9e71ef69ba3492ed8",
    "switches": "7a9d41aee97a4aaae9eaad48ec664cffcaf2c04f882b2758209a384516528625",
}


@of_both
def test_streams_are_the_same_on_every_machine(tmp_path, config):
    """If this digest changes, so do all results measured on the population."""
    mixed = [simulate(dataclasses.replace(config, seed=i % 3), i, "always" if i % 2 else "policy") for i in range(40)]
    write_streams(tmp_path / "streams.jsonl", mixed)
    digest = hashlib.sha256((tmp_path / "streams.jsonl").read_bytes()).hexdigest()
    assert digest == DIGESTS[config.population]


@of_both
def test_a_stream_does_not_depend_on_what_else_is_drawn(config):
    random.seed(1)
    np.random.seed(1)
    alone = simulate(config, 17)
    random.seed(2)
    assert alone == draw(20, config=config)[17] == simulate(config, 17)


@of_both
def test_streams_and_seeds_differ(config):
    streams = draw(300, config=config) + draw(300, config=dataclasses.replace(config, seed=1))
    assert len({stream.id for stream in streams}) == 600
    assert len({stream.events for stream in streams}) == 600


@pytest.mark.slow
def test_shape_of_the_population():
    streams = draw(3000)
    assert {s.domain for s in streams} == set(simulator_text.PHRASES)
    for values in ([s.domain for s in streams], [s.persona for s in streams], [len(s.events) for s in streams]):
        counts = np.unique(values, return_counts=True)[1]
        assert stats.chisquare(counts).pvalue > 1e-3
    assert {s.persona for s in streams} == set(simulator_text.ARRIVALS)
    assert {len(s.events) for s in streams} == set(range(CONFIG.min_events, CONFIG.max_events + 1))
    for stream in streams[:300]:
        gaps = np.diff([event.time for event in stream.events])
        assert ((gaps >= 5) & (gaps < 60)).all()
        assert [step.event for step in stream.steps] == list(range(1, len(stream.events)))
        assert all(len(step.candidates) == 1 and step.candidates[0].text is None for step in stream.steps)


def test_tables_are_complete():
    for shares in (NEXT_FREE, NEXT_STUCK):
        assert tuple(shares) == KINDS
        assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
    assert set(NEED) == set(STAYS) == set(KINDS)
    personas, domains = set(simulator_text.ARRIVALS), set(simulator_text.PHRASES)
    assert set(ACCEPT) == {(persona, quiet) for persona in personas for quiet in (False, True)}
    assert domains == set(simulator_text.ITEMS) == set(simulator_text.OFFERS) == set(simulator_text.PURPOSES)
    assert all(set(phrases) == set(KINDS) for phrases in simulator_text.PHRASES.values())
    assert all(0 < p < 1 for pair in PROPENSITY.values() for p in pair)


# The true probabilities, as a function of what is seen.


def test_the_truth_can_be_read_off_the_text():
    """Persona, kinds, items and their order determine the recorded probabilities exactly."""
    for stream in draw(300):
        for step, (situation, open_items) in zip(stream.steps, read(stream), strict=True):
            expected = truth(situation, CONFIG)
            offer = step.candidates[0]
            assert (step.p_need_true, offer.p_accept_true, offer.p_both_true) == expected
            assert situation.persona == stream.persona
            stuck = f"{open_items[-1]} is unsolved" if open_items else "nothing is unsolved"
            assert step.rationale["evidence"] == stuck
            assert step.rationale["risk"] == f"{stream.persona}, notifications {'off' if situation.quiet else 'on'}"


configs = st.builds(
    SimulatorConfig, dependence=st.floats(-1, 1), hidden_effect=st.floats(0, 1) | st.sampled_from([0.0, 1.0])
)
personas, kinds = st.sampled_from(sorted(simulator_text.ARRIVALS)), st.sampled_from(KINDS)
situations = st.builds(Situation, persona=personas, kind=kinds, stuck=st.booleans(), quiet=st.booleans())
situations = situations.filter(lambda s: s.stuck or s.kind != "trouble")


@given(config=configs, situation=situations)
def test_the_hidden_variable_averages_out(config, situation):
    off, on = truth(situation, config, False), truth(situation, config, True)
    seen = truth(situation, config)
    mean = [(1 - ON_CALL_SHARE) * a + ON_CALL_SHARE * b for a, b in zip(off, on, strict=True)]
    np.testing.assert_allclose(seen, mean, atol=1e-12)
    assert seen.p_need == NEED[situation.kind][situation.stuck] == off.p_need == on.p_need
    assert seen.p_accept == ACCEPT[situation.persona, situation.quiet][situation.stuck]
    assert 0 <= on.p_accept <= seen.p_accept <= off.p_accept <= 1


@given(situation=situations)
def test_the_hidden_effect_is_off_at_zero_and_maximal_at_one(situation):
    def accept(effect):
        return [truth(situation, SimulatorConfig(hidden_effect=effect), call).p_accept for call in (False, True)]

    assert accept(0.0)[0] == accept(0.0)[1]
    off, on = accept(1.0)
    assert off == pytest.approx(1, abs=1e-12) or on == pytest.approx(0, abs=1e-12)


@given(config=configs, situation=situations, call=st.sampled_from([None, False, True]))
def test_need_and_acceptance_together_are_possible(config, situation, call):
    p_need, p_accept, p_both = truth(situation, config, call)
    assert max(0, p_need + p_accept - 1) - 1e-12 <= p_both <= min(p_need, p_accept) + 1e-12


@given(situation=situations, effect=st.floats(0, 1), call=st.booleans())
def test_dependence_runs_from_apart_over_independent_to_nested(situation, effect, call):
    def both(dependence, call):
        return truth(situation, SimulatorConfig(dependence=dependence, hidden_effect=effect), call).p_both

    p_need, p_accept, _ = truth(situation, SimulatorConfig(hidden_effect=effect), call)
    assert both(0.0, call) == pytest.approx(p_need * p_accept, abs=1e-12)
    assert both(1.0, call) == pytest.approx(min(p_need, p_accept), abs=1e-12)
    assert both(-1.0, call) == pytest.approx(max(0, p_need + p_accept - 1), abs=1e-12)
    assert both(0.5, call) == pytest.approx((both(0.0, call) + both(1.0, call)) / 2, abs=1e-12)
    # They are independent given the call, and need does not depend on it, so they are independent given what is seen.
    seen = truth(situation, SimulatorConfig(hidden_effect=effect))
    assert seen.p_both == pytest.approx(seen.p_need * seen.p_accept, abs=1e-12)


# Labels and log, compared with the true probabilities.


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        *((CONFIG, change) for change in ({}, *({"dependence": d, "hidden_effect": 1.0} for d in (-1.0, 0.6)))),
        *((SWITCHES, change) for change in ({}, {"dependence": 0.6, "hidden_effect": 1.0}, {"switches": 3})),
    ],
)
def test_labels_have_the_true_frequencies(config, changes):
    t = table(draw(1500 if config is CONFIG else 600, "always", dataclasses.replace(config, **changes)))
    assert chance(t.on_call, np.full_like(t.on_call, ON_CALL_SHARE)) > 1e-3
    for label, p in ((t.need, t.p_need), (t.accept, t.p_accept), (t.need * t.accept, t.p_both)):
        assert chance(label, p) > 1e-3
        # The test has power: probabilities that are wrong by 0.03 are rejected.
        assert chance(label, np.where(p < 0.5, p + 0.03, p - 0.03)) < 1e-6


@pytest.mark.slow
def test_acceptance_given_the_hidden_variable():
    streams = draw(3000, "always")
    t = table(streams)
    situations = [situation for stream in streams for situation, _ in read(stream)]
    calls = zip(situations, t.on_call, strict=True)
    expected = np.array([truth(situation, CONFIG, bool(call)) for situation, call in calls])
    assert chance(t.accept, expected[:, 1]) > 1e-3
    assert chance(t.need * t.accept, expected[:, 2]) > 1e-3


@pytest.mark.parametrize("config", [CONFIG, pytest.param(SWITCHES, marks=pytest.mark.slow)], ids=["items", "switches"])
def test_the_log_offers_as_its_propensity_says_and_propensities_undo_its_bias(config):
    streams = draw(3000 if config is CONFIG else 1500, config=config)
    t = table(streams)
    if config is CONFIG:
        stuck = [situation.stuck for stream in streams for situation, _ in read(stream)]
    else:
        stuck = [is_stuck for stream in streams for _, _, is_stuck, _ in read_switches(stream)]
    expected = [PROPENSITY[bool(call)][is_stuck] for call, is_stuck in zip(t.on_call, stuck, strict=True)]
    np.testing.assert_array_equal(t.propensity, expected)
    assert chance(t.logged, t.propensity) > 1e-3
    offered = t.logged == 1
    np.testing.assert_array_equal(np.isnan(t.accept), ~offered)
    error = t.accept - t.p_accept
    assert error[offered].mean() > 0.05 * (config is CONFIG) and z_score(error[offered]) > 10
    assert abs(z_score(np.where(offered, error / t.propensity, 0))) < 3


def test_always_makes_every_offer_and_sees_what_became_of_it():
    t = table(draw(300, "always"))
    assert (t.propensity == 1).all() and (t.logged == 1).all() and not np.isnan(t.accept).any()


def z_score(errors):
    return errors.mean() / (errors.std() / len(errors) ** 0.5)


def test_without_the_hidden_effect_logged_acceptances_are_unbiased():
    t = table(draw(1500, config=SimulatorConfig(hidden_effect=0.0)))
    assert abs(z_score((t.accept - t.p_accept)[t.logged == 1])) < 3
    assert abs(z_score(t.logged - t.propensity)) < 3


# Responses.


@of_both
@pytest.mark.parametrize("most", [0, 1, 3])
def test_the_first_offers_that_were_needed_and_accepted_carry_responses(most, config):
    for stream in draw(50, config=dataclasses.replace(config, responses=most)):
        good = [s for s in stream.steps if s.candidates[0].logged and s.y_need and s.candidates[0].y_accept]
        answered = [step for step in stream.steps if step.candidates[0].response is not None]
        assert answered == good[:most]


@of_both
def test_a_response_has_the_visible_keys_and_is_about_an_item(config):
    answered, items = 0, simulator_text.ITEMS if config is CONFIG else switches.SETTINGS
    for stream in draw(300, config=config):
        for step in stream.steps:
            if step.candidates[0].response is None:
                continue
            answered += 1
            response = json.loads(step.candidates[0].response)
            assert list(response) == ["Purpose", "Thoughts", "Proactive Task", "Response"]
            assert any(item in response["Proactive Task"] for item in items[stream.domain])
    assert answered > 100


# Settings.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_events": 1}, "min_events: found 1, expected at least 2 (the arrival and one more)"),
        ({"min_events": 9, "max_events": 8}, "max_events: found 8, expected at least min_events = 9"),
        ({"responses": -1}, "responses: found -1, expected at least 0"),
        ({"dependence": 1.5}, "dependence: found 1.5, expected a number in [-1, 1]"),
        ({"dependence": float("nan")}, "dependence: found nan, expected a number in [-1, 1]"),
        ({"hidden_effect": -0.1}, "hidden_effect: found -0.1, expected a number in [0, 1]"),
        ({"teacher_blur": -0.1}, "teacher_blur: found -0.1, expected at least 0, in log-odds"),
        ({"teacher_blur": float("inf")}, "teacher_blur: found inf, expected at least 0, in log-odds"),
        ({"teacher_bias": float("nan")}, "teacher_bias: found nan, expected a finite number of log-odds"),
        *(({"population": "switches", "switches": n}, f"switches: found {n}, expected 2 or 3") for n in (1, 4)),
    ],
)
def test_invalid_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SimulatorConfig(**changes)


@pytest.mark.parametrize(("least", "most"), [(2, 3), (30, 30)])
def test_lengths_are_within_the_configured_limits(least, most):
    streams = draw(50, config=SimulatorConfig(min_events=least, max_events=most))
    assert {len(stream.events) for stream in streams} == {least, most}


def test_an_offer_has_to_be_about_the_newest_open_item_or_else_the_item_named_last():
    for stream in draw(50):
        for step, (_, open_items) in zip(stream.steps, read(stream), strict=True):
            shown = [
                match["item"]
                for event in stream.events[1 : step.event + 1]
                for pattern, _ in patterns(simulator_text, stream.domain)
                if (match := pattern.fullmatch(event.text)) and "item" in match.groupdict()
            ]
            about = [simulator_text.WORKS[stream.domain], *shown[-1:], *open_items][-1]
            assert subject(stream, step.event) == about


@pytest.mark.parametrize("population", ["items", "switches"])
def test_the_simulators_own_responses_name_what_their_step_is_about(population):
    checked = 0
    for stream in draw(60, config=dataclasses.replace(CONFIG, population=population, responses=9)):
        for step in stream.steps:
            named = step.rationale["if_silent"] not in ("goes on alone", "nothing breaks")  # the events name it
            if step.candidates[0].response and named:
                task = json.loads(step.candidates[0].response)["Proactive Task"]
                assert names(task, subject(stream, step.event))
                checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("topic", "named", "others"),
    [
        ("index.html", ["Debug index.html", "DEBUG INDEX.HTML, please"], ["Debug the index"]),
        ("index", ["Swap the index"], ["Debug index.html"]),
        ("parser.py", ["Debug the code of parser.py"], ["Debug parser.python", "Debug parser.py and router.go"]),
        ("the code", ["Debug the code"], ["Debug parser.py", "Debug"]),
    ],
)
def test_an_offer_names_one_thing(topic, named, others):
    assert [names(offer, topic) for offer in (*named, *others)] == [True] * len(named) + [False] * len(others)
