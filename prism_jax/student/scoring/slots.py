"""Reads the two slots of packed rows from a student; training, evaluation and the deployed policy all use this.

A slot is a token of a branch. Its next-token logits for the two answers give one probability, sigmoid(z_yes - z_no).
"""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from prism_jax.student.attention import Visible
from prism_jax.student.prompting.packing import Packed, Sizes
from prism_jax.student.qwen3 import Params, Qwen3, Tree


@dataclasses.dataclass(frozen=True)
class Slots:
    """A student and the token ids of the two answers; hashable, so that a jitted function can close over it."""

    model: Qwen3  # the static half of the student
    yes: int  # token id of the answer yes
    no: int  # token id of the answer no
    window: int  # w, the length that no branch exceeds
    visible: Visible = None  # bounds on the part of the trunk that each chunk of W branch tokens attends to
    # number of lowest blocks that receive no gradient, like the embedding below them; 0 trains everything
    frozen: int = 0
    # sizes of every bucket, if there are several; W and the bounds then depend on the sizes of the batch
    buckets: tuple[Sizes, ...] = ()

    def logits(
        self, params: Params, hidden: Float[Array, "B R D"], batch: Packed
    ) -> tuple[Float[Array, "B S"], Float[Array, "B C"]]:
        """Returns the logits z_yes - z_no at the need slots and at the accept slots, given the hidden states."""
        z_need = self.model.answers(params, hidden, batch.need_slot, self.yes, self.no)
        return z_need, self.model.answers(params, hidden, batch.accept_slot, self.yes, self.no)

    def read(self, params: Params, batch: Packed) -> tuple[Float[Array, "B S"], Float[Array, "B C"]]:
        """Computes the hidden states of a batch and returns the logits at its need slots and at its accept slots."""
        return self.logits(params, self.hidden(params, batch), batch)

    def hidden(self, params: Params, batch: Packed, key: PRNGKeyArray | None = None) -> Float[Array, "B R D"]:
        """Computes the final hidden states of the branches, from token ids or from `features`.

        In training, a key draws the dropout of adapters.
        """
        if self.frozen and batch.tokens.ndim == 2:
            # The frozen blocks are not differentiated, so none of their activations are kept for a backward pass.
            batch = self.features(jax.lax.stop_gradient(params), batch)
        return self.model.branch_hidden(params, Tree.of(batch), *self.reach(batch), self.frozen, key)

    def features(self, params: Params, batch: Packed) -> Packed:
        """Returns the batch with the outputs of the frozen blocks in place of the token ids of trunk and branches."""
        trunk, tokens = self.model.branch_features(params, Tree.of(batch), *self.reach(batch), self.frozen)
        return batch._replace(trunk=trunk, tokens=tokens)

    def reach(self, batch: Packed) -> tuple[int, Visible]:
        """The window W and the bounds on the visible trunk for a batch.

        ValueError if the sizes of the batch are not those of any bucket.
        """
        if not self.buckets:
            return self.window, self.visible
        shape = batch.trunk.shape[1], batch.positions.shape[1]
        for size in self.buckets:
            if (size.trunk, size.branches) == shape:
                return size.window, size.visible
        known = ", ".join(f"{size.trunk} + {size.branches}" for size in self.buckets)
        raise ValueError(f"batch: found rows of {shape[0]} + {shape[1]} tokens, expected one of {known}")
