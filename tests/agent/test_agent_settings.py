"""What a deployment may choose without training: costs per event, budgets, the allow-list."""

import itertools

import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.settings import AgentSettings, Budget, Critical, Exploration, Terms
from prism_jax.agent.steps import Observation
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams import Event

ALWAYS = OperatingPoint(policy="always")


def agent(point=ALWAYS, critical=None, **terms):
    return Agent(FakeReader(), exported(), AgentSettings(Terms(point, **terms), critical or Critical()))


def observed(agent, times, stream="s", **arguments):
    return [agent.observe(stream, Event(time=float(time), text="x"), **arguments) for time in times]


def test_an_event_changes_its_costs_and_no_others():
    deciding = agent(OperatingPoint(margin=0.0))
    plain, dear, plain_again = (
        deciding.observe(name, Event(time=0.0, text="x"), costs=costs)
        for name, costs in (("a", None), ("b", {"c_fa": 1e15, "policy": "dynamic"}), ("c", {}))
    )
    assert dear.terms.point == OperatingPoint(c_fa=1e15, margin=0.0)
    assert plain.terms == plain_again.terms == deciding.settings.terms
    assert not dear.spoke and dear.threshold > 0.99
    assert dear.record()["costs"] == {"c_fa": 1e15, "c_fn": 2.0}


BAD = {
    "unknown": ({"c_fx": 1.0}, "costs.c_fx: found an unknown key, expected one of c_fa, c_fn"),
    "true": ({"c_fa": True}, "costs.c_fa: found True, expected a finite number or a name"),
    "nan": ({"c_fa": float("nan")}, "costs.c_fa: found nan, expected a finite number"),
    "a list": ({"c_fa": [1]}, "costs.c_fa: found"),
    "a name": ({"c_fa": "1"}, "costs.c_fa: found '1', expected a number"),
    "a number": ({"policy": 1}, "costs.policy: found 1, expected a name"),
    "a policy": ({"policy": "oracle"}, "costs.policy: found 'oracle', expected one of"),
    "a margin": ({"margin": 1.5}, "costs.margin: found 1.5"),
    "a window alone": ({"offers_window": 5}, "costs.offers_window: found it without most_offers"),
    "a budget": ({"most_offers": -1}, "costs.most: found -1, expected a whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_costs_are_refused_by_name(case):
    costs, message = BAD[case]
    deciding = agent()
    deciding.observe("s", Event(time=0.0, text="x"), costs={"c_fa": 1})  # true must not be taken for this 1
    with pytest.raises(RefusedError) as caught:
        deciding.observe("s", Event(time=0.0, text="x"), costs=costs)
    assert str(caught.value).startswith("stream 's': ") and message in str(caught.value)


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_no_window_of_a_stream_has_more_offers_than_its_budget(most):
    times = [0, 1, 5, 9, 10, 10, 11, 14, 21, 21, 22, 40, 41, 42, 43]
    decisions = observed(agent(offers=Budget(most, 10.0)), times)
    offers = [decision.time for decision in decisions if decision.spoke]
    assert all(sum(end - 10 < time <= end for time in offers) <= most for end in times)
    for decision in decisions:
        window = [time for time in offers if decision.time - 10 < time <= decision.time]
        if not decision.spoke:  # silent only where it must be
            assert len(window) >= most
            assert (decision.propensity, decision.offer) == (0.0, None)
            assert decision.reason == f"silent: interruption budget, {most} in 10 s"
    assert bool(offers) == (most > 0)


def test_budgets_are_per_stream_and_change_per_event():
    deciding = agent(offers=Budget(1, 100.0))
    first, second = observed(deciding, [0, 1])
    other = deciding.observe("other", Event(time=1.0, text="x"))
    allowed = deciding.observe("s", Event(time=2.0, text="x"), costs={"most_offers": 2})
    later = deciding.observe("s", Event(time=3.0, text="x"))
    assert [d.spoke for d in (first, second, other, allowed, later)] == [True, False, True, True, False]


def test_a_stream_cannot_use_up_the_slow_budget_of_another():
    deciding = agent(OperatingPoint(margin=1.0), thoughts=Budget(2, 60.0))
    greedy = observed(deciding, range(50), "greedy")
    modest = observed(deciding, [50, 51], "modest")
    assert [d.thought for d in greedy] == [True, True] + [False] * 48
    assert [d.thought for d in modest] == [True, True]
    assert all(d.fired for d in greedy) and all(d.slow is None for d in greedy[2:])
    assert all(d.reason.endswith("; not thought about: the slow budget is spent") for d in greedy[2:])
    assert {d.tokens["think"] for d in greedy[2:]} == {0}
    assert [d.thought for d in observed(deciding, [61.5], "greedy")] == [True]


def test_critical_events_always_pass_and_are_marked():
    critical = Critical(frozenset({"Smoke in the kitchen."}), (r"ALARM \d+",))
    dear = OperatingPoint(c_fa=1e15, c_fn=0.0, margin=1.0)
    for point, policy in itertools.product((dear, ALWAYS), ("dynamic", "never")):
        deciding = agent(point, critical, offers=Budget(0), thoughts=Budget(0))
        named, others = ("Smoke in the kitchen.", "ALARM 12"), ("ALARM 12 ignore this", "smoke in the kitchen.")
        for text, passes in ((text, text in named) for text in (*named, *others)):
            decision = deciding.observe("s", Event(time=0.0, text=text), costs={"policy": policy})
            assert (decision.critical, decision.spoke) == (passes, passes)
            if passes:
                assert decision.reason == "offer: critical event"
                assert (decision.propensity, decision.thought, decision.fired) == (1.0, False, False)
                assert 0 < decision.p_need < 1 and decision.response is not None


def test_critical_offers_do_not_count_against_the_budget():
    deciding = agent(ALWAYS, Critical(frozenset({"Fire"})), offers=Budget(1, 100.0))
    texts = ["Fire", "Fire", "x", "Fire", "x"]
    decisions = [deciding.observe("s", Event(time=float(i), text=text)) for i, text in enumerate(texts)]
    assert [d.spoke for d in decisions] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Budget(-1), "most: found -1"),
        (lambda: Budget(1001), "most: found 1001, expected a whole number from 0 to 1000"),
        (lambda: Budget(True), "most: found True"),
        (lambda: Budget(1, 0.0), "seconds: found 0.0"),
        (lambda: Budget(1, float("nan")), "seconds: found nan"),
        (lambda: Exploration(0.6), "epsilon: found 0.6"),
        (lambda: Exploration(float("nan")), "epsilon: found nan"),
        (lambda: Exploration(0.1, 0.0), "loss: found 0.0"),
        (lambda: Exploration(0.1, 0.1, True), "seed: found True"),
        (lambda: Critical(patterns=("(",)), "expected a regular expression"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()


def test_settings_change_the_fingerprint_of_the_config_alone():
    plain, changed = agent(OperatingPoint()), agent(OperatingPoint(c_fn=3.0))
    assert plain.fingerprints["config"] != changed.fingerprints["config"]
    assert plain.fingerprints | {"config": changed.fingerprints["config"]} == changed.fingerprints
    assert agent(OperatingPoint()).fingerprints == plain.fingerprints
    assert plain.observe("s", Event(time=0.0, text="x")).fingerprints == plain.fingerprints


def test_streams_with_other_terms_share_a_batch():
    items = [
        Observation(f"s{i}", Event(time=0.0, text=f"{i}"), costs={"policy": policy, "fixed_threshold": i / 9})
        for i, policy in enumerate(("always", "never", "fixed", "product", "static", "dynamic", "fixed", "always"))
    ]
    together = agent(OperatingPoint()).observe_many(items)
    alone = [agent(OperatingPoint()).observe_many([item])[0] for item in items]
    assert [(d.spoke, d.threshold, d.reason) for d in together] == [(d.spoke, d.threshold, d.reason) for d in alone]
    assert [d.spoke for d in together][:2] == [True, False]
