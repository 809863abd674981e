"""A person in front of a gate, in memory; that the server decides alike is tested with the server."""

import concurrent.futures
import copy
import dataclasses
import pickle

import numpy as np
import pytest

from prism_jax.decision.calibration import Platt
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.person import DEFAULT, believe, update
from prism_jax.gate import Gate


def gate(**point):
    return Gate(OperatingPoint(**{"c_fa": 1.0, "c_fn": 2.0, **point}), accept=Platt(0.8, -0.1, 4.0))


@pytest.mark.parametrize(("c_fa", "doubt"), [(1.0, False), (4.0, True)])
def test_who_has_not_answered_is_decided_on_as_everybody_but_for_the_benefit_of_the_doubt(c_fa, doubt):
    ours, accept = gate(c_fa=c_fa), np.linspace(0.02, 0.98, 49)
    for p in accept.tolist():
        anybody, ada = ours(0.9, p), ours.person("ada")(0.9, p)
        assert ada.p_accept == pytest.approx(anybody.p_accept, abs=1e-12)
        assert (ada.threshold < anybody.threshold) == doubt and ada.speak >= anybody.speak
        assert ada.speak == (ada.p_accept >= ada.threshold)


def test_answers_move_one_person_once_each():
    ours = gate()
    ada, bob = ours.person("ada"), ours.person("bob")
    verdict = ada(0.9, 0.8)
    before = verdict.p_accept
    ada.learn(verdict, accepted=False)
    assert ada(0.9, 0.8).p_accept < before == bob(0.9, 0.8).p_accept == ours(0.9, 0.8).p_accept
    z = np.log(before / (1 - before))
    assert ada.belief == pytest.approx(update(believe(DEFAULT), z, 0.0, DEFAULT), rel=1e-12)
    assert ours.person("ada") == ada and ours.person("ada").belief == ada.belief
    with pytest.raises(ValueError, match="verdict: found one that has its answer, expected one answer to each offer"):
        ada.learn(verdict, accepted=True)
    ada.forget()
    assert ada.belief == believe(DEFAULT) and not ours.people


def test_only_an_offer_that_was_made_to_the_person_is_answered():
    ours = gate()
    ada = ours.person("ada")
    for verdict, found in (
        (ada(0.9, 0.01), "silence"),
        (ours(0.9, 0.9), "one of the gate alone"),
        (ours.person("bob")(0.9, 0.9), "one of 'bob'"),
    ):
        with pytest.raises(ValueError, match=rf"verdict: found {found}, expected an offer that person\('ada'\) made"):
            ada.learn(verdict, accepted=True)
    verdict = ada(0.9, 0.9)
    with pytest.raises(ValueError, match=r"p_need, p_accept: found decisions of the shape \(2,\), expected numbers"):
        ada(0.9, np.array([0.1, 0.9]))
    with pytest.raises(ValueError, match="person: found '', expected a name"):
        ours.person("")
    assert not ours.people
    ada.learn(verdict, accepted=np.True_)


def test_people_are_no_part_of_what_a_gate_is_but_copies_take_them_along():
    ours = gate()
    ada = ours.person("ada")
    ada.learn(ada(0.9, 0.9), accepted=True)
    assert ours == gate() and "people" not in ours.to_dict() and "ada" not in repr(ours)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert other.person("ada").belief == ada.belief
        other.person("ada").forget()
    refitted = dataclasses.replace(gate(c_fa=2.0), people=ours.people)
    assert refitted.person("ada").belief == ada.belief


def test_threads_lose_no_answer_and_count_none_twice():
    ours, one = gate(), gate()
    verdicts = [ours.person("ada")(0.9, 0.9) for _ in range(200)]

    def answer(verdict):
        try:
            ours.person("ada").learn(verdict, accepted=True)
        except ValueError:
            return 0
        return 1

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(answer, verdicts * 3)) == 200
    for verdict in [one.person("ada")(0.9, 0.9) for _ in range(200)]:
        one.person("ada").learn(verdict, accepted=True)
    assert ours.people == one.people
