"""Reads the two slots of packed rows off a student: one place for training, evaluation and the deployed policy.

A slot is a branch token whose next-token logits for the two answers give one probability, sigmoid(z_yes - z_no).
"""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Array, Float

from prism_jax.prompting.packing import Packed, Sizes
from prism_jax.student import Qwen3
from prism_jax.student.attention import Visible
from prism_jax.student.qwen3 import Params, Tree


@dataclasses.dataclass(frozen=True)
class Slots:
    """A student and the two answers that its slots are read for; hashable, so that jit can close over it.

    Attributes:
      model: The static half of the student.
      yes: Id of the answer yes.
      no: Id of the answer no.
      window: W, the length that no branch exceeds.
      visible: Bounds on what each W branch tokens see of the trunk.
      frozen: Lowest blocks that no gradient enters, nor the embedding below them; 0 trains all of them.
      buckets: Where rows come in several sizes, all of them; W and the bounds are then those of a batch's own sizes.
    """

    model: Qwen3
    yes: int
    no: int
    window: int
    visible: Visible = None
    frozen: int = 0
    buckets: tuple[Sizes, ...] = ()

    def logits(
        self, params: Params, hidden: Float[Array, "B R D"], batch: Packed
    ) -> tuple[Float[Array, "B S"], Float[Array, "B C"]]:
        """The logits z_yes - z_no at the need slots and at the accept slots of a batch, from its hidden states."""
        z_need = self.model.answers(params, hidden, batch.need_slot, self.yes, self.no)
        return z_need, self.model.answers(params, hidden, batch.accept_slot, self.yes, self.no)

    def read(self, params: Params, batch: Packed) -> tuple[Float[Array, "B S"], Float[Array, "B C"]]:
        """`logits` of a batch, reading it first."""
        return self.logits(params, self.hidden(params, batch), batch)

    def hidden(self, params: Params, batch: Packed) -> Float[Array, "B R D"]:
        """Final hidden states of the branches, from token ids or from `features`."""
        if self.frozen and batch.tokens.ndim == 2:
            # Nothing below is differentiated, so nothing of it is kept for a backward pass.
            batch = self.features(jax.lax.stop_gradient(params), batch)
        return self.model.branch_hidden(params, Tree.of(batch), *self.reach(batch), self.frozen)

    def features(self, params: Params, batch: Packed) -> Packed:
        """The batch with what the frozen blocks compute in place of the token ids of trunk and branches."""
        trunk, tokens = self.model.branch_features(params, Tree.of(batch), *self.reach(batch), self.frozen)
        return batch._replace(trunk=trunk, tokens=tokens)

    def reach(self, batch: Packed) -> tuple[int, Visible]:
        """W and the bounds of a batch.

        Raises:
          ValueError: for a batch that has the sizes of no bucket.
        """
        if not self.buckets:
            return self.window, self.visible
        shape = batch.trunk.shape[1], batch.positions.shape[1]
        for size in self.buckets:
            if (size.trunk, size.branches) == shape:
                return size.window, size.visible
        known = ", ".join(f"{size.trunk} + {size.branches}" for size in self.buckets)
        raise ValueError(f"batch: found rows of {shape[0]} + {shape[1]} tokens, expected one of {known}")
