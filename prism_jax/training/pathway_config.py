"""The training pathways of the paper's ablation C: one table of settings for one objective (docs/maths.md, section 6).

    joint         all data, decision losses with propensities and burden
    sft           all data, plain cross-entropy on hard labels at the slots
    rdc_sft       curated data, decision losses
    schema_sft    all data, the teacher's text as the only target, including its yes or no at the slots
    dft           second stage: dynamic fine-tuning of the text, starting from an rdc_sft run
    weighted_sft  second stage: reward-weighted text, starting from an rdc_sft run

The settings `filter` and `losses` override the corresponding columns, which allows all four combinations. The token
factors of `dft` and `weighted_sft` apply to text only. At a slot, the weighted losses would not be proper scoring
rules, and the gate needs probabilities there.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from prism_jax.runtime.dataclass_config import check, check_above, check_at_least, check_shares
from prism_jax.training.loss_config import LossConfig

Score = Literal["default", "paper"]
Method = Literal["corrected", "paper"]
"""The paper's method with its formulas corrected, or as printed (docs/maths.md)."""
Name = Literal["joint", "sft", "rdc_sft", "schema_sft", "dft", "weighted_sft"]


class Pathway(NamedTuple):
    """One row of the table of pathways."""

    filtered: bool  # whether to train only on the data that curation keeps
    # losses at the slots: `decision` takes them from the config's loss section, `plain` is cross-entropy without
    # propensities and burden, and `schema` has none, but trains on the teacher's answers as tokens
    losses: Literal["plain", "decision", "schema"]
    tokens: Literal["sft", "dft"] = "sft"  # loss per text token, `sft` or `dft`
    weighted: bool = False  # whether text is weighted by its reward


PATHWAYS: dict[str, Pathway] = {
    "joint": Pathway(filtered=False, losses="decision"),
    "sft": Pathway(filtered=False, losses="plain"),
    "rdc_sft": Pathway(filtered=True, losses="decision"),
    "schema_sft": Pathway(filtered=False, losses="schema"),
    "dft": Pathway(filtered=True, losses="decision", tokens="dft"),
    "weighted_sft": Pathway(filtered=True, losses="decision", weighted=True),
}
SECOND_STAGES = ("dft", "weighted_sft")


@dataclasses.dataclass(frozen=True)
class PathwayConfig:
    """The pathway of a run and its settings."""

    name: Name = "joint"  # name of the pathway; second stages start from the run that training.start names
    # whether the data is curated, `on` or `off`; `as_named` leaves it to the pathway
    filter: Literal["as_named", "on", "off"] = "as_named"
    # losses at the slots, `plain` or `decision`; `as_named` leaves them to the pathway
    losses: Literal["as_named", "plain", "decision"] = "as_named"
    keep: float = 0.6  # share of the rows that curation keeps, those with the highest R_DC; read where count = 0
    count: int = 0  # number of rows that curation keeps (the paper's 1,800); 0 leaves it to `keep`
    # whether curation selects within each pair of labels; False selects globally, as the paper does
    stratify: bool = True
    # form of R_DC, in curation and in the rewards of weighted_sft: `default`, or `paper` for Eq. 2 as printed
    score: Score = "default"
    alpha: float = 0.0  # weight of the teacher in slot targets, (1 - alpha) * label + alpha * teacher's probability
    # Share of the steps with a rationale that get a slow branch instead of their fast branch. A step has only one
    # branch, so that each label counts once. The choice depends only on training.seed, the stream and the step.
    slow: float = 0.0
    # Share of the slow branches that read the fields which the student of training.start wrote, instead of the
    # rationale. Deployment reads such fields, so this is a second stage for the slots; their text is not trained.
    own_fields: float = 0.0
    beta: float = 0.5  # temperature of the rewards in weighted_sft
    advantage: bool = False  # whether weighted_sft subtracts the domain's mean from rewards, with weights of at most 20
    rejected_cost: float = 1.0  # cost c_FA of a rejected offer in R_total
    token_cost: float = 1e-4  # cost c_tok per response token in R_total

    def __post_init__(self) -> None:
        check(self, "keep", 0 < self.keep <= 1, "a share in (0, 1]")
        check_shares(self, "a share in [0, 1]", "alpha", "slow", "own_fields")
        if self.own_fields and not self.slow:
            raise ValueError(
                f"own_fields: found {self.own_fields} with slow = 0, expected slow branches, which read them"
            )
        check_above(self, 0, "beta")
        check_at_least(self, 0, "rejected_cost", "token_cost", "count")
        if self.name == "schema_sft" and self.losses != "as_named":
            raise ValueError(
                f"losses: found {self.losses!r}, expected 'as_named': schema_sft has no losses at the slots"
            )
        if self.alpha > 0 and self.resolved.losses != "decision":
            raise ValueError(
                f"alpha: found {self.alpha} with {self.resolved.losses} losses, expected 0: only decision losses use it"
            )

    def curated_by(self, method: Method) -> PathwayConfig:
        """The same pathway; by `paper`, R_DC is Eq. 2 as printed, with one cut over all rows."""
        return dataclasses.replace(self, score="paper", stratify=False) if method == "paper" else self

    @property
    def resolved(self) -> Pathway:
        """The pathway's row of the table, with the overrides applied."""
        row = PATHWAYS[self.name]
        if self.filter != "as_named":
            row = row._replace(filtered=self.filter == "on")
        if self.losses != "as_named":
            row = row._replace(losses=self.losses)
        return row

    @property
    def needs_teacher(self) -> bool:
        """Whether the streams must include a teacher's probabilities."""
        row = self.resolved
        return row.filtered or row.weighted or row.losses == "schema" or self.alpha > 0

    def objective(self, loss: LossConfig) -> LossConfig:
        """Returns the config's weights and estimators with the changes that the pathway makes to them.

        A pathway without slow branches prices no slow pass.
        """
        row = self.resolved
        loss = dataclasses.replace(loss, tokens=row.tokens, slow=loss.slow if self.slow else 0.0)
        if row.losses == "plain":
            return dataclasses.replace(loss, estimator="none", burden=0.0)
        if row.losses == "schema":
            return dataclasses.replace(loss, need=0.0, accept=0.0, burden=0.0, response=1.0)
        return loss

    def __str__(self) -> str:
        """Returns one line for the terminal."""
        row = self.resolved
        kept = f"{self.count:,} rows" if self.count else f"{self.keep:.0%}"
        ranked = "R_DC" if self.score == "default" else "R_DC of the paper"
        data = f"the {kept} with the highest {ranked}" if row.filtered else "all data"
        text = "weighted by reward" if row.weighted else row.tokens
        mixed = f", {self.slow:.0%} slow branches" if self.slow else ""
        return f"{self.name}: {data}, {row.losses} losses, text {text}{mixed}"
