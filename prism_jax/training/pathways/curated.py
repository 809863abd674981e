"""Uses a teacher's probabilities to select the rows to train on and to weight their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from prism_jax.decision import curation
from prism_jax.decision.losses import advantage_weights, reward_weights, total_reward
from prism_jax.prompting.supervised import supervised_step
from prism_jax.prompting.template import Template
from prism_jax.streams import Stream
from prism_jax.streams.edit import keep_candidates
from prism_jax.training.pathways.table import PathwayConfig

UNJUDGED = "need not judged"


class Rows(NamedTuple):
    """One row per candidate of each step, in order, with the columns that `curation.score` reads.

    Attributes:
      q_need: Teacher's probability of need.
      q_accept: Teacher's probability of acceptance.
      y_need: Need label; 0 where there is none.
      y_accept: Acceptance label; 0 where there is none.
      seen: 1 where the acceptance was observed, else 0.
      judged: Whether there is a need label.
      domain: Name of the stream's domain.
    """

    q_need: Float[np.ndarray, " n"]
    q_accept: Float[np.ndarray, " n"]
    y_need: Float[np.ndarray, " n"]
    y_accept: Float[np.ndarray, " n"]
    seen: Float[np.ndarray, " n"]
    judged: Bool[np.ndarray, " n"]
    domain: np.ndarray

    def score(self) -> Float[np.ndarray, " n"]:
        """Returns R_DC; where there is no need label, its term is 0."""
        need = np.where(self.judged, self.y_need, self.q_need)
        return np.asarray(curation.score(self.q_need, self.q_accept, need, self.y_accept, self.seen))


def rows_of(streams: Sequence[Stream]) -> Rows:
    """Returns the rows of all streams; an offer counts as made where its acceptance was observed."""
    found = [
        (step.teacher_need, offer.teacher_accept, step.y_need, offer.y_accept, stream.domain)
        for stream in streams
        for step in stream.steps
        for offer in step.candidates
    ]
    *numbers, domain = zip(*found, strict=True)
    q_need, q_accept, y_need, y_accept = (np.array(column, dtype=float) for column in numbers)
    judged, seen = ~np.isnan(y_need), ~np.isnan(y_accept)
    return Rows(
        q_need,
        q_accept,
        np.where(judged, y_need, 0.0),
        np.where(seen, y_accept, 0.0),
        seen * 1.0,
        judged,
        np.array(domain),
    )


def curate(streams: tuple[Stream, ...], pathway: PathwayConfig) -> tuple[tuple[Stream, ...], dict[str, str]]:
    """Keeps the candidates that curation selects, and drops steps without candidates and streams without steps.

    Returns:
      The remaining streams, and the numbers of kept rows by stratum and domain, for the start-up report.

    Raises:
      ValueError: if no step has a need label, or `pathway.count` exceeds the rows whose step has one.
    """
    rows = rows_of(streams)
    kept, (judged,) = np.zeros(len(rows.judged), bool), np.nonzero(rows.judged)
    if not judged.size:
        raise ValueError("data: found no step with a need label, expected some: curation scores labelled steps")
    if pathway.count > judged.size:
        raise ValueError(
            f"pathway.count: found {pathway.count}, expected at most the {judged.size} rows of the training streams "
            "whose step has a need label"
        )
    chosen = curation.select(
        rows.score()[judged],
        rows.y_need[judged],
        rows.y_accept[judged],
        rows.seen[judged],
        fraction=None if pathway.count else pathway.keep,
        count=pathway.count or None,
        stratify=pathway.stratify,
        domain=rows.domain[judged],
    )
    kept[judged[chosen.kept]] = True
    facts = {"kept": f"{kept.sum():,} of {kept.size:,} rows"}
    for entry in chosen.summary:
        shown = f"{entry.domain} {entry.kept:,} of {entry.kept + entry.dropped:,}"
        facts[f"  {entry.stratum}"] = ", ".join([*filter(None, [facts.get(f"  {entry.stratum}")]), shown])
    if not rows.judged.all():
        facts[f"  {UNJUDGED}"] = f"0 of {(~rows.judged).sum():,}"
    if not kept.all():
        facts["curation"] = _what_curation_does(rows, kept)
    return _only(streams, kept), facts


def _what_curation_does(rows: Rows, kept: Bool[np.ndarray, " n"]) -> str:
    """Warns that the kept labels are more certain than those of other streams, with the teacher's error on both."""

    def error(q: np.ndarray, y: np.ndarray, known: np.ndarray) -> str:
        squares = (q - y) ** 2
        shares = (float(squares[known & some].mean()) for some in (np.ones_like(kept), kept) if (known & some).any())
        return " to ".join(f"{share:.3f}" for share in shares)

    return (
        "WARNING: curation keeps labels that the teacher predicted (its Brier score on the training rows falls from "
        f"{error(rows.q_need, rows.y_need, rows.judged)} for need, from "
        f"{error(rows.q_accept, rows.y_accept, rows.seen > 0)} for acceptance), so raw signals will be overconfident. "
        "The calibration streams are not curated: the calibrated signals are fitted on them, and every table shows both"
    )


def _only(streams: Sequence[Stream], kept: Bool[np.ndarray, " n"]) -> tuple[Stream, ...]:
    """Returns the streams with only the kept candidates."""
    flags = iter(kept.tolist())  # in the order in which `keep_candidates` visits the candidates
    left = [keep_candidates(stream, lambda _: next(flags)) for stream in streams]
    return tuple(stream for stream in left if stream is not None)


class Weights(NamedTuple):
    """Weights of text.

    Attributes:
      factor: Weight of each candidate's text, 1 where it has none; the mean over the rows with text is 1.
      facts: Effective sample size of the weights, for the start-up report.
    """

    factor: Float[np.ndarray, " n"]
    facts: dict[str, str]


def weigh(streams: Sequence[Stream], pathway: PathwayConfig, template: Template) -> Weights:
    """Weights the text of each candidate, in order, in proportion to exp(R_total / beta).

    A row has text if it has a response or its step's branch is slow (docs/maths.md, section 6).

    Raises:
      ValueError: if no row has text.
    """
    rows = rows_of(streams)
    steps = [(supervised_step(step), offer) for stream in streams for step in stream.steps for offer in step.candidates]
    tokens = np.array(
        [0 if offer.response is None else len(template.response(offer.response)[1]) for _, offer in steps]
    )
    text = (tokens > 0) | np.array([step.slow for step, _ in steps])
    if not text.any():
        raise ValueError("data: found no response and no slow branch, expected some text for weighted_sft to weight")
    costs = {"c_fa": pathway.rejected_cost, "c_tok": pathway.token_cost}
    reward = np.asarray(total_reward(rows.score(), rows.seen, rows.y_accept, tokens, **costs))[text]
    weights = (
        advantage_weights(reward, _mean_of_domain(reward, rows.domain[text]), pathway.beta)
        if pathway.advantage
        else reward_weights(reward, pathway.beta)
    )
    factor = np.ones(len(text))
    factor[text] = np.asarray(weights.weight)
    fact = f"effective sample size {float(weights.effective_sample_size):,.0f} of {text.sum():,} rows with text"
    return Weights(factor, {"weights": fact})


def _mean_of_domain(reward: Float[np.ndarray, " n"], domain: np.ndarray) -> Float[np.ndarray, " n"]:
    """Returns the baseline V of each row: the mean reward of its domain."""
    _, index = np.unique(domain, return_inverse=True)
    return (np.bincount(index, reward) / np.bincount(index))[index]
