"""The rows of a split: their content in either packing; every label is in the rows exactly once."""

import dataclasses
import re

import chex
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_step import RUN

from prism_jax.streams.summary import summarise
from prism_jax.student.prompting.packing import decisions, pack, pad, sizes
from prism_jax.student.prompting.rows import PackedStream
from prism_jax.training.input_pipeline import batches, pack_split
from prism_jax.training.run_config import PackingConfig

STREAMS, TEMPLATE = RUN.splits.train, RUN.template
LABELS = summarise(STREAMS)["all"]
LONGEST = max(int(pack(stream, TEMPLATE, 10**6).positions.max()) + 1 for stream in STREAMS)
# A context that fits every decision of the tiny streams with its own event, but few with their full history.
SHORT = 120


def test_with_the_defaults_row_i_is_stream_i_in_one_size():
    packed = [pack(stream, TEMPLATE, 512, i) for i, stream in enumerate(STREAMS)]
    size = sizes(packed)
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(512))
    assert split.size == size and split.streams == tuple((i,) for i in range(len(STREAMS)))
    chex.assert_trees_all_equal(split.rows, tuple(pad(row, size, TEMPLATE.tokenizer.pad) for row in packed))


@settings(max_examples=15)
@given(context=st.integers(SHORT, LONGEST), unit=st.sampled_from(["streams", "decisions"]))
def test_every_label_is_in_the_rows_once_whatever_the_context(context, unit):
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(context, unit=unit))
    assert [int(row.row) for row in split.rows] == list(range(len(split.rows)))
    assert sum(row.need_weight.sum() for row in split.rows) == pytest.approx(LABELS.need_labels)
    judged = [(row, i) for row in split.rows for i in np.flatnonzero(row.accept_weight * row.logged)]
    for number, stream in enumerate(STREAMS):
        mine = [i for i, owner in enumerate(split.streams) if owner == (number,)]
        found = [float(row.y_accept[i]) for row, i in judged if int(row.row) in mine]
        offers = [candidate.y_accept for step in stream.steps for candidate in step.candidates]
        assert found == [label for label in offers if label is not None]
    assert (split.need, split.accept) == (LABELS.need_labels, LABELS.accept_labels)
    assert max(int(row.positions.max()) for row in split.rows) < context


def test_the_tokens_of_separate_decisions_depend_on_the_context_but_not_on_the_packing():
    for context in (512, 2 * SHORT, SHORT):
        by_stream, by_row = (
            pack_split(STREAMS, TEMPLATE, PackingConfig(context, unit=unit)) for unit in ("streams", "decisions")
        )
        assert by_stream.tokens_alone == by_row.tokens_alone == by_row.tokens
        assert by_stream.tokens < by_row.tokens
    assert by_stream.stream_count == len(STREAMS) < len(by_stream.rows) < len(by_row.rows)


def test_supervised_tokens_are_slots_with_a_label_and_responses():
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(512))
    responses = [candidate.response for stream in STREAMS for step in stream.steps for candidate in step.candidates]
    written = sum(len(TEMPLATE.response(text)[1]) for text in responses if text is not None)
    assert written and split.supervised == LABELS.need_labels + LABELS.accept_labels + written


@pytest.mark.parametrize("kept", [[], [0, 0]], ids=["lost", "duplicated"])
def test_a_label_that_is_lost_or_duplicated_is_an_error(monkeypatch, kept):
    parts = PackedStream.parts
    monkeypatch.setattr(PackedStream, "parts", lambda packed, history: [parts(packed, history)[i] for i in kept])
    found = len(kept) * LABELS.need_labels
    message = f"data: found {found} need labels in {len(kept) * len(STREAMS)} rows, expected each of the streams' "
    with pytest.raises(ValueError, match=f"^{message}{LABELS.need_labels} once$"):
        pack_split(STREAMS, TEMPLATE, PackingConfig(512))


@pytest.mark.parametrize("unit", ["streams", "decisions"])
def test_streams_without_labels_are_an_error(unit):
    bare = [
        dataclasses.replace(
            stream,
            steps=tuple(
                dataclasses.replace(
                    single.steps[0],
                    y_need=None,
                    candidates=(dataclasses.replace(single.steps[0].candidates[0], y_accept=None),),
                )
                for single in decisions(stream)
            ),
        )
        for stream in STREAMS[:2]
    ]
    message = "data: found 2 streams without any need or acceptance label, expected some"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        pack_split(bare, TEMPLATE, PackingConfig(512, unit=unit))


def test_every_seed_has_its_own_order():
    split = pack_split(STREAMS, TEMPLATE, PackingConfig(512))

    def order(seed):
        rows = batches(split, 2, seed)
        return [next(rows).row.tolist() for _ in range(len(STREAMS))]

    assert order(0) == order(0)
    assert order(0) != order(1)
