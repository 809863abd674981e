"""The limit on decisions per row sets the number of updates and leaves the loss as it is; few updates are a warning."""

import dataclasses
import re

import jax
import numpy as np
import pytest
import tiny
from full_pass import quick_jit
from pathway_streams import STREAMS, TEMPLATE, supervised
from tiny_step import LOSS, POINT, RUN, stacked
from whole_objective import objective

from prism_jax.streams import Candidate
from prism_jax.streams.edit import map_steps
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.input_pipeline import pack_split
from prism_jax.training.job import describe, plan, step_shape, warn_of_many_epochs, warn_of_short_warmup
from prism_jax.training.run import resolve
from prism_jax.training.run_config import PackingConfig
from prism_jax.training.start import from_hub


def with_offers(stream):
    """The stream with a second offer at each step, so that a row's limit can divide a step."""
    other = Candidate(text="Something else?", y_accept=1.0, teacher_accept=0.5, response="Done.")
    return map_steps(stream, lambda step: dataclasses.replace(step, candidates=(*step.candidates, other)))


@pytest.mark.slow
def test_losses_and_gradient_of_an_epoch_do_not_depend_on_the_decisions_per_row():
    """Nor on whether decisions of a stream share its row at all."""
    found = supervised(tuple(with_offers(stream) for stream in STREAMS[:3]), slow=0.5)
    params = RUN.model.init(jax.random.key(0))

    def terms(**packing):
        split = pack_split(found.streams, TEMPLATE, PackingConfig(1024, **packing))
        batch, size = stacked(split.rows), split.size
        slots = Slots(RUN.model, TEMPLATE.yes, TEMPLATE.no, size.window, size.visible)

        @quick_jit
        def parts_and_gradient(params):
            return jax.grad(lambda params: objective(params, batch, slots, LOSS, POINT, 0.1), has_aux=True)(params)

        return len(split.rows), *jax.device_get(parts_and_gradient(params))

    whole, gradient, expected = terms()
    for packing in ({"max_decisions": 1}, {"max_decisions": 3}, {"unit": "decisions"}):
        rows, own, got = terms(**packing)
        assert rows > whole
        for name, value in expected.items():
            assert float(got[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), name
        for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(gradient), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


def job(**packing):
    changed = dataclasses.replace(tiny.CONFIG, packing=PackingConfig(context=512, **packing))
    return plan(resolve(tiny.with_training(changed, steps=0, epochs=2.0)))


def test_the_report_gives_updates_and_tokens_against_one_decision_per_row():
    whole, single = job(), job(max_decisions=1)
    decisions = sum(len(step.candidates) for stream in whole.run.splits.train for step in stream.steps)
    assert describe(single)["steps"].startswith(
        f"{-(-2 * decisions // 4)} updates of 4 rows each, 2.0 epochs of {decisions / 4:.1f} updates, "
    )
    assert describe(whole)["steps"].startswith("6 updates of 4 rows each, 2.0 epochs of 3.0 updates, 1 of them")
    assert ", 1.0 times fewer than" in describe(single)["packing"]
    saving = float(re.search(r"([\d.]+) times fewer", describe(whole)["packing"])[1])
    assert saving == pytest.approx(single.split.tokens / whole.split.tokens, abs=0.05) and saving > 1.5


@pytest.mark.parametrize(
    ("trigger", "slow", "rationales", "expected"),
    [
        ("margin", 0.0, True, "none is trained (pathway.slow = 0), so decision.trigger = margin has no effect"),
        ("value", 0.3, False, "none is trained (no training step has a rationale), so decision.trigger = value has"),
        ("margin", 0.3, True, None),
        ("auto", 0.0, True, None),
    ],
)
def test_a_start_says_that_a_trigger_has_no_slow_pass(trigger, slow, rationales, expected):
    config = dataclasses.replace(
        RUN.config,
        decision=dataclasses.replace(RUN.config.decision, trigger=trigger),
        pathway=dataclasses.replace(RUN.config.pathway, slow=slow),
    )
    train = RUN.splits.train
    if not rationales:
        train = [map_steps(stream, lambda step: dataclasses.replace(step, rationale=None)) for stream in train]
    facts = dataclasses.replace(RUN, config=config, splits=dataclasses.replace(RUN.splits, train=tuple(train))).facts()
    found = facts.get("slow pass")
    assert found is None if expected is None else found.startswith(expected)


def test_a_schedule_with_too_few_updates_to_warm_up_is_a_warning(caplog):
    def warnings(epochs, warmup=0.1):
        caplog.clear()
        warn_of_short_warmup(tiny.with_training(steps=0, epochs=epochs, warmup=warmup).training.over(3.0), 3.0)
        return caplog.messages

    job()  # warns too: a config of two epochs of three updates
    assert "training.warmup: found 0.1 of 6 updates (3.0 per epoch), which is 1, expected at least 3" in caplog.text
    (message,) = set(warnings(2.0))
    assert message.startswith("training.warmup: found 0.1 of 6 updates (3.0 per epoch), which is 1, expected at least")
    assert len(set(warnings(8.0))) == 1
    assert warnings(10.0) == []
    assert warnings(2.0, warmup=0.0) == []


def test_many_epochs_without_a_choice_of_the_checkpoint_are_a_warning(caplog):
    def warnings(epochs, epoch=3.0, **settings):
        caplog.clear()
        warn_of_many_epochs(tiny.with_training(steps=0, epochs=epochs, **settings).training.over(epoch), epoch)
        return caplog.messages

    assert warnings(10.0) == warnings(10.0, 4 / 3) == []  # 14 whole updates are 10.5 epochs
    (message,) = set(warnings(12.0))
    assert message.startswith("training.steps: found 36 updates, which are 12.0 epochs, expected at most 10, or valid")
    chosen = dataclasses.replace(tiny.CONFIG, data=dataclasses.replace(tiny.CONFIG.data, validation=0.2))
    assert warnings(12.0, config=chosen, keep_best=1) == []
    assert describe(job())["validation"] == "none (data.validation = 0): the newest checkpoint is the result"


def test_a_name_of_the_hub_is_its_folder_in_the_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    snapshot = tmp_path / "models--some--model.1" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (tmp_path / "models--some--model.1" / "refs").mkdir()
    (tmp_path / "models--some--model.1" / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert from_hub("some/model.1") == str(snapshot)
    with pytest.raises(ValueError, match=rf"^{snapshot}/config\.json: "):  # --plan reads what training would
        step_shape(tiny.with_training(start="some/model.1"))
    with pytest.raises(FileNotFoundError, match=r"^training\.start: found no some/other here, .*: hf download some"):
        from_hub("some/other")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some" / "model.1").mkdir(parents=True)
    assert from_hub("some/model.1") == "some/model.1"
    assert from_hub("") == ""
    assert from_hub("runs/a--b") == "runs/a--b"  # no name on the hub: it is refused as a path
