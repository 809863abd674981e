"""What a frozen language model holds in the middle about every offer: its states, read in one pass per stream.

The stream is packed as for the student: its events once, as a trunk, and every offer as a leaf of a branch. At each
requested block, the states of the tokens of an offer's own text are averaged, and the state at its answer slot is
taken. Nothing above the highest requested block is computed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prism_jax.streams import Stream
from prism_jax.streams.edit import without_answers
from prism_jax.student.prompting.packing import Packed, Sizes, pad, sizes
from prism_jax.student.prompting.rows import pack_stream
from prism_jax.student.prompting.template import Template
from prism_jax.student.qwen3 import Params, Qwen3, Tree, take
from prism_jax.student.scoring.slots import Slots


@dataclasses.dataclass(frozen=True)
class Reader:
    """A frozen language model and the blocks at which it is read."""

    model: Qwen3
    params: Params
    template: Template
    blocks: tuple[int, ...]  # numbers of blocks, ascending; the states after each of them are read
    context: int  # maximum number of tokens up to the end of one decision; a longer stream is cut, as for the student

    def read(
        self, streams: Sequence[Stream], wanted: Collection[int] | None = None
    ) -> Iterator[Float[np.ndarray, "offers width"]]:
        """Yields the states of the offers of each wanted stream, in the order of its steps and their offers.

        The width is (2 · blocks) · D: at each block the mean over the offer's tokens, then the answer slot. `wanted`
        are places in `streams`, None for all; rows are padded to the largest of all streams, wanted or not, since other
        padding changes the last bits.
        """
        rows = [self.packed(stream) for stream in streams]
        every = [row for parts in rows for row in parts]
        if not every:
            return
        size = sizes(every)
        slots = Slots(self.model, self.template.yes, self.template.no, size.window, size.visible)
        read = jax.jit(functools.partial(_states, slots, self.blocks))
        for parts in rows if wanted is None else (rows[place] for place in sorted(wanted)):
            states = [self._of_row(read, row, size) for row in parts]
            yield (
                np.concatenate(states) if states else np.zeros((0, 2 * len(self.blocks) * self.model.config.hidden_dim))
            )

    def packed(self, stream: Stream) -> list[Packed]:
        """The packed rows of a stream without its labels and responses."""
        return pack_stream(without_answers(stream), self.template, self.context).parts()

    def _of_row(self, read: Any, row: Packed, size: Sizes) -> Float[np.ndarray, "offers width"]:
        owner = np.full(size.branches, size.candidates, np.int32)
        owner[: len(row.tokens)] = _owner(row, self.template, size.candidates)
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], pad(row, size, self.template.tokenizer.pad))
        return np.asarray(read(self.params, batch, jnp.asarray(owner)), np.float32)[: len(row.accept_slot)]


def _owner(row: Packed, template: Template, nobody: int) -> Int[np.ndarray, " R"]:
    """Number of the offer whose own text each branch token belongs to; `nobody` for all other tokens."""
    written = template.describe()
    before, after = (len(written[name]["ids"]) for name in ("offer", "accept"))
    owner = np.full(len(row.tokens), nobody, np.int32)
    for number, slot in enumerate(row.accept_slot.tolist()):
        mine = np.flatnonzero((row.branch == row.branch[slot]) & (row.leaf == row.leaf[slot]))
        owner[mine[before : len(mine) - after]] = number
    return owner


def _states(
    slots: Slots, blocks: tuple[int, ...], params: Params, batch: Packed, owner: Int[Array, " R"]
) -> Float[Array, "C width"]:
    """Means over the tokens of each offer, and answer slots, at each block."""
    window, visible = slots.reach(batch)
    count = batch.accept_slot.shape[1]
    columns = []
    for state in slots.model.branch_states(params, Tree.of(batch), window, visible, blocks):
        state = state.astype(jnp.float32)
        total = jax.ops.segment_sum(state[0], owner, count + 1)[:count]
        tokens = jax.ops.segment_sum(jnp.ones(owner.shape[0]), owner, count + 1)[:count]
        columns += [total / jnp.maximum(tokens, 1)[:, None], take(state, batch.accept_slot)[0]]
    return jnp.concatenate(columns, axis=1)
