"""Which meaning of need `loss.need_target=auto` chooses, and why."""

import dataclasses

import pytest

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.splits import Splits
from prism_jax.training.config import RunConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.need_target import chosen
from prism_jax.training.pathways.table import PathwayConfig
from prism_jax.training.run import open_run, reopen_run, resolve
from prism_jax.training.workdir import Workdir

AUTO = RunConfig(loss=LossConfig(need_target="auto"))


def stream(name, *labels):
    """A stream with one step per pair of need and acceptance."""
    steps = tuple(
        Step(event=i, candidates=(Candidate(text="a", y_accept=accept), Candidate(text="b", y_accept=0.0)), y_need=need)
        for i, (need, accept) in enumerate(labels)
    )
    return Stream(id=name, events=tuple(Event(time=float(i), text="x") for i in range(len(labels))), steps=steps)


def splits(train, calibration=((1.0, 1.0), (0.0, 1.0))):
    return Splits(train=(stream("t", *train),), calibration=(stream("c", *calibration),), test=(stream("e", *train),))


BOTH = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))


@pytest.mark.parametrize(
    ("labels", "target", "reason"),
    [
        (splits(BOTH), "given_accept", "right however need and acceptance depend"),
        (splits(((1.0, 1.0), (0.0, 0.0))), "marginal", "needed wherever an offer of the train streams was accepted"),
        (splits(((0.0, 1.0), (1.0, 0.0))), "marginal", "needed at no accepted offer of the train streams"),
        (splits(((0.0, 0.0), (1.0, 0.0))), "marginal", "no accepted offer of the train streams has a label of need"),
        (splits(((None, 1.0), (1.0, 0.0))), "marginal", "no accepted offer of the train streams has a label of need"),
        (splits(BOTH, ((1.0, 1.0), (0.0, 0.0))), "marginal", "an offer of the calibration streams was accepted"),
    ],
)
def test_need_given_acceptance_is_learned_where_accepted_offers_can_teach_it(labels, target, reason):
    choice = chosen(AUTO, labels)
    assert choice.target == target and reason in choice.reason


@pytest.mark.parametrize(
    ("pathway", "reason"),
    [(PathwayConfig(alpha=0.5), "pathway.alpha = 0.5"), (PathwayConfig(name="schema_sft"), "pathway schema_sft")],
)
def test_a_teachers_need_is_unconditional(pathway, reason):
    choice = chosen(dataclasses.replace(AUTO, pathway=pathway), splits(BOTH))
    assert choice.target == "marginal" and choice.reason.startswith(reason)


@pytest.mark.parametrize("target", ["marginal", "given_accept"])
def test_what_is_set_or_begun_is_kept(target):
    config = dataclasses.replace(AUTO, loss=LossConfig(need_target=target))
    assert chosen(config, splits(BOTH)) == (target, "as set")
    assert chosen(AUTO, splits(BOTH), first=target) == (target, "as in the run of training.start")


def test_a_run_records_what_was_chosen(tmp_path):
    config = dataclasses.replace(
        AUTO,
        data=dataclasses.replace(AUTO.data, train_streams=8, calibration_streams=4, test_streams=4),
        simulator=SimulatorConfig(min_events=4, max_events=4, responses=0),
    )
    run = open_run(resolve(config))
    assert run.config.loss.need_target == run.need_target.target == "given_accept"
    assert run.facts()["p_need"].startswith("need, given that the offer is accepted: right however")
    workdir = Workdir(tmp_path / "run")
    workdir.claim(run.config)
    run.template.tokenizer.save(workdir.tokenizer)
    assert reopen_run(workdir).need_target == ("given_accept", "as set")
