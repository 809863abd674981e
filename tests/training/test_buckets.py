"""Shapes of rows: the division into buckets is optimal, and epochs of bucketed batches contain every row."""

import dataclasses
import itertools
import json
import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_step import LOSS, POINT, RUN, jit
from whole_objective import objective

from prism_jax.student.prompting.packing import Packed, sizes
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.input_pipeline import batches, choose_buckets, empty_like, pack_split
from prism_jax.training.job import plan
from prism_jax.training.loop import train
from prism_jax.training.run import resolve
from prism_jax.training.run_config import PackingConfig
from prism_jax.training.workdir import Workdir

STREAMS, TEMPLATE = RUN.splits.train, RUN.template


def blank(trunk, branches):
    """Returns an unpadded row, given the length of its trunk and the lengths of its branches."""
    number = np.repeat(np.arange(1, len(branches) + 1), branches).astype(np.int32)
    empty, zero = np.zeros(0, np.int32), np.zeros(len(number), np.int32)
    columns = dict.fromkeys(Packed._fields, empty)
    columns |= dict.fromkeys(("tokens", "positions", "stop", "leaf"), zero)
    return Packed(**columns | {"trunk": np.zeros(trunk, np.int32), "branch": number, "begin": None})


rows_of_lengths = st.lists(
    st.builds(blank, st.integers(1, 80), st.lists(st.integers(1, 30), min_size=1, max_size=4)), min_size=1, max_size=9
)


def positions(groups, rows, batch):
    """Returns the number of padded positions per epoch."""
    shapes = [sizes([rows[i] for i in group]) for group in groups]
    fill = len(groups) > 1
    return sum(
        (math.ceil(len(group) / batch) * batch if fill else len(group)) * (shape.trunk + shape.branches)
        for group, shape in zip(groups, shapes, strict=True)
    )


@settings(max_examples=60)
@given(rows=rows_of_lengths, count=st.integers(1, 4), batch=st.integers(1, 3))
def test_no_cut_has_fewer_positions(rows, count, batch):
    groups = choose_buckets(rows, count, batch)
    assert sorted(i for group in groups for i in group) == list(range(len(rows)))
    assert 1 <= len(groups) <= count
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i].trunk) + len(rows[i].tokens), i))
    places = [place for place in range(1, len(rows)) if (len(rows) - place) % batch == 0]
    options = [
        [order[a:b] for a, b in itertools.pairwise((0, *cuts, len(rows)))]
        for number in range(count)
        for cuts in itertools.combinations(places, number)
    ]
    assert positions(groups, rows, batch) <= min(positions(option, rows, batch) for option in options)
    shapes = [(size.trunk, size.branches) for size in (sizes([rows[i] for i in group]) for group in groups)]
    assert len(set(shapes)) == len(shapes)


def test_the_division_of_a_large_split_is_nearly_optimal():
    """Thousands of rows of two lengths fall into two shapes, except for a few rows next to the nearest cut place."""
    rows = [blank(8, [8]), blank(64, [64])] * 2000
    groups = choose_buckets(rows, 2, 4)
    assert sorted(i for group in groups for i in group) == list(range(len(rows)))
    best = [list(range(0, len(rows), 2)), list(range(1, len(rows), 2))]
    assert positions(groups, rows, 4) <= 1.01 * positions(best, rows, 4)


def epoch_of(split, batch, iterator):
    return [next(iterator) for _ in range(round(split.epoch))]


@settings(max_examples=10)
@given(
    unit=st.sampled_from(["streams", "decisions"]),
    row_tokens=st.sampled_from([0, 500]),
    buckets=st.integers(2, 4),
    batch=st.integers(1, 5),
    context=st.sampled_from([120, 512]),
    seed=st.integers(0, 3),
)
def test_an_epoch_holds_every_label_once_in_batches_of_one_shape(unit, row_tokens, buckets, batch, context, seed):
    split = pack_split(
        STREAMS, TEMPLATE, PackingConfig(context, unit=unit, row_tokens=row_tokens, buckets=buckets), batch=batch
    )
    assume(len(split.buckets) > 1)  # with one bucket, batches continue from one epoch into the next
    iterator = batches(split, batch, seed)
    shape_of = {i: (len(split.rows[i].trunk), len(split.rows[i].tokens)) for i in range(len(split.rows))}
    for _ in range(2):
        epoch = epoch_of(split, batch, iterator)
        numbers = np.concatenate([found.row for found in epoch])
        assert sorted(numbers[numbers >= 0]) == list(range(len(split.rows)))
        for found in epoch:
            real = found.row[found.row >= 0].tolist()
            assert {shape_of[i] for i in real} == {(found.trunk.shape[1], found.tokens.shape[1])}
            empty = found.row < 0
            assert not any(getattr(found, name)[empty].any() for name in ("need_weight", "accept_weight"))
            assert not found.response_weight[empty].any()
        assert sum(found.need_weight.sum() for found in epoch) == pytest.approx(split.need)
        assert sum((found.accept_weight * found.logged).sum() for found in epoch) == split.accept
        filled = len(epoch) * batch - len(split.rows)
        assert 0 <= filled == np.count_nonzero(numbers < 0)


def test_buckets_waste_less_and_epochs_differ():
    one, three = (
        pack_split(STREAMS, TEMPLATE, PackingConfig(512, unit="decisions", buckets=n), batch=4) for n in (1, 3)
    )
    assert len(three.buckets) == 3 and three.padding < 0.75 * one.padding
    iterator = batches(three, 4, 0)
    epochs = [[found.row.tolist() for found in epoch_of(three, 4, iterator)] for _ in range(2)]
    assert epochs[0] != epochs[1]
    again = batches(three, 4, 0)
    assert [next(again).row.tolist() for _ in epochs[0]] == epochs[0]


@pytest.mark.parametrize("buckets", [1, 3])
def test_iteration_resumes_bit_identical_from_a_saved_position(buckets):
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(512, unit="decisions", buckets=buckets), batch=4)
    iterator = batches(split, 4, seed=3)
    for _ in range(5):
        next(iterator)
    state, other = iterator.get_state(), batches(split, 4, seed=3)
    other.set_state(state)
    for _ in range(2 * math.ceil(split.epoch)):
        chex.assert_trees_all_equal(next(other), next(iterator))


@pytest.mark.parametrize("buckets", [1, 3])
def test_hosts_load_consecutive_parts_of_each_batch(buckets):
    """Two hosts together load the batches of a single host: the first half of each on the first host."""
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(512, unit="decisions", buckets=buckets), batch=4)
    whole, first, second = (batches(split, 4, 7, host, hosts) for host, hosts in ((None, None), (0, 2), (1, 2)))
    for _ in range(2 * math.ceil(split.epoch)):
        halves = next(first), next(second)
        chex.assert_trees_all_equal(jax.tree.map(lambda a, b: np.concatenate([a, b]), *halves), next(whole))


def test_hosts_that_cannot_share_a_batch_are_an_error():
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(512))
    message = "training.batch: found 4, expected a multiple of the 3 hosts that share it"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        batches(split, 4, 0, 0, 3)


@pytest.mark.slow
def test_empty_rows_have_no_weight_and_every_bucket_uses_its_own_bounds():
    """A bucket's loss, with two empty rows added, equals the loss of the same rows padded to a single shape."""
    params = RUN.model.init(jax.random.key(0))
    one, three = (pack_split(STREAMS, TEMPLATE, PackingConfig(512, buckets=n), batch=4) for n in (1, 3))

    def loss(split, rows):
        shapes = tuple(bucket.size for bucket in split.buckets)
        slots = Slots(RUN.model, TEMPLATE.yes, TEMPLATE.no, 1, buckets=shapes)
        batch = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *rows)
        return jit(lambda params: objective(params, batch, slots, LOSS, POINT, 0.1)[1])(params)

    for bucket in three.buckets[:2]:
        rows = [three.rows[i] for i in bucket.rows]
        found = loss(three, rows + [empty_like(rows[0])] * 2)
        chex.assert_trees_all_close(found, loss(one, [one.rows[i] for i in bucket.rows]), rtol=1e-4)


def test_a_batch_of_no_known_shape_is_an_error():
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(512))
    slots = Slots(RUN.model, TEMPLATE.yes, TEMPLATE.no, 1, buckets=(split.size,))
    longer = jax.tree.map(lambda leaf: leaf[None], split.rows[0])
    assert slots.reach(longer) == (split.size.window, split.size.visible)
    longer = longer._replace(trunk=np.pad(longer.trunk, ((0, 0), (0, 8))))
    message = rf"^batch: found rows of {split.size.trunk + 8} \+ {split.size.branches} tokens, expected one of "
    with pytest.raises(ValueError, match=message):
        slots.reach(longer)


@pytest.mark.slow
def test_a_run_with_buckets_and_shared_rows_trains_and_resumes_bit_identical(tmp_path):
    packing = dataclasses.replace(tiny.CONFIG.packing, buckets=2, row_tokens=600)
    config = dataclasses.replace(tiny.with_training(steps=4, batch=2, checkpoint_every=2), packing=packing)
    run, ends = resolve(config), []
    for name, stop in (("whole", 0), ("parts", 3)):
        (tmp_path / name).mkdir()
        job = plan(dataclasses.replace(run, workdir=Workdir(tmp_path / name)))
        assert len(job.split.buckets) == 2 and any(len(row) > 1 for row in job.split.streams)
        if stop:
            with pytest.raises(tiny.StoppedError):
                train(job, progress=False, after_step=tiny.stop_after(stop))
        ends.append((train(job, progress=False), (tmp_path / name / "metrics.jsonl").read_bytes()))
    chex.assert_trees_all_equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
    assert [json.loads(line)["step"] for line in ends[0][1].splitlines()] == [1, 2, 3, 4]
