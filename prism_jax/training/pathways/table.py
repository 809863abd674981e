"""The training pathways of the paper's ablation C, as rows of one table (docs/maths.md, section 6).

    joint         all data, the decision losses with propensities and burden
    sft           all data, plain cross-entropy at the slots on hard labels
    rdc_sft       curated data, decision losses
    schema_sft    the only targets are the teacher's text and its yes or no at the slots
    dft           second stage: dynamic fine-tuning of the text, from an rdc_sft run
    weighted_sft  second stage: reward-weighted text, from an rdc_sft run

`filter` and `losses` override the data and the losses of a row, so that the effect of each can be measured separately.
`dft` and `weighted_sft` weight only tokens of text. Weighted slot losses would no longer be proper, and the gate needs
probabilities from the slots.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from prism_jax.training.loss_config import LossConfig

Name = Literal["joint", "sft", "rdc_sft", "schema_sft", "dft", "weighted_sft"]


class Recipe(NamedTuple):
    """What a pathway does.

    Attributes:
      filtered: Whether to train only on the rows that curation keeps.
      losses: Losses at the slots. `decision` uses those of the config's `loss` section, `plain` cross-entropy without
        propensities and burden, and `schema` only the teacher's answers as tokens.
      tokens: Loss per token of text, `sft` or `dft`.
      weighted: Whether to weight text by its reward.
    """

    filtered: bool
    losses: Literal["plain", "decision", "schema"]
    tokens: Literal["sft", "dft"] = "sft"
    weighted: bool = False


RECIPES: dict[str, Recipe] = {
    "joint": Recipe(filtered=False, losses="decision"),
    "sft": Recipe(filtered=False, losses="plain"),
    "rdc_sft": Recipe(filtered=True, losses="decision"),
    "schema_sft": Recipe(filtered=False, losses="schema"),
    "dft": Recipe(filtered=True, losses="decision", tokens="dft"),
    "weighted_sft": Recipe(filtered=True, losses="decision", weighted=True),
}
SECOND_STAGES = ("dft", "weighted_sft")


@dataclasses.dataclass(frozen=True)
class PathwayConfig:
    """Which pathway to train, and what it needs.

    Attributes:
      name: A row of the table; second stages start from the run that `training.start` names.
      filter: Whether the data is curated: `on`, `off`, or as the row says.
      losses: Losses at the slots: `plain`, `decision`, or as the row says.
      keep: Share of the rows that curation keeps, those of highest R_DC.
      stratify: Whether curation selects within each pair of labels; False selects the global top, as the paper does.
      alpha: Slot targets are (1 - alpha) * label + alpha * the teacher's probability.
      slow: Share of the steps with a rationale that get a slow branch instead of their fast one. A step has one branch,
        so that each label counts once. The choice depends only on `training.seed`, the stream and the step.
      beta: Temperature of the reward weights exp(R_total / beta), for `weighted_sft`; in units of reward.
      advantage: Whether the reward weights use R_total minus its mean in the domain, with weights of at most 20.
      rejected_cost: c_FA of R_total, the cost of a rejected offer.
      token_cost: c_tok of R_total, the cost of a token of the response.
    """

    name: Name = "joint"
    filter: Literal["as_named", "on", "off"] = "as_named"
    losses: Literal["as_named", "plain", "decision"] = "as_named"
    keep: float = 0.6
    stratify: bool = True
    alpha: float = 0.0
    slow: float = 0.0
    beta: float = 0.5
    advantage: bool = False
    rejected_cost: float = 1.0
    token_cost: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep: found {self.keep}, expected a share in (0, 1]")
        for name in ("alpha", "slow"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a share in [0, 1]")
        if not self.beta > 0:
            raise ValueError(f"beta: found {self.beta}, expected above 0")
        for name in ("rejected_cost", "token_cost"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 0")
        if self.name == "schema_sft" and self.losses != "as_named":
            raise ValueError(
                f"losses: found {self.losses!r}, expected 'as_named': schema_sft has no losses at the slots"
            )
        if self.alpha > 0 and self.recipe.losses != "decision":
            raise ValueError(
                f"alpha: found {self.alpha} with {self.recipe.losses} losses, expected 0: no labels to mix"
            )

    @property
    def recipe(self) -> Recipe:
        """The row of the table that `name` selects, with the overrides applied."""
        recipe = RECIPES[self.name]
        if self.filter != "as_named":
            recipe = recipe._replace(filtered=self.filter == "on")
        if self.losses != "as_named":
            recipe = recipe._replace(losses=self.losses)
        return recipe

    @property
    def asks_teacher(self) -> bool:
        """Whether the streams have to carry a teacher's probabilities."""
        recipe = self.recipe
        return recipe.filtered or recipe.weighted or recipe.losses == "schema" or self.alpha > 0

    def objective(self, loss: LossConfig) -> LossConfig:
        """The weights and estimators that the pathway trains with, of those that the config asks for."""
        recipe = self.recipe
        loss = dataclasses.replace(loss, tokens=recipe.tokens)
        if recipe.losses == "plain":
            return dataclasses.replace(loss, estimator="none", burden=0.0)
        if recipe.losses == "schema":
            return dataclasses.replace(loss, need=0.0, accept=0.0, burden=0.0, response=1.0)
        return loss

    def __str__(self) -> str:
        """One line for the terminal."""
        recipe = self.recipe
        data = f"the {self.keep:.0%} of highest R_DC" if recipe.filtered else "all data"
        text = "weighted by reward" if recipe.weighted else recipe.tokens
        mixed = f", {self.slow:.0%} slow branches" if self.slow else ""
        return f"{self.name}: {data}, {recipe.losses} losses, text {text}{mixed}"
