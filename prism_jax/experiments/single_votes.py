"""What is a model of each annotator worth on ProactiveBench's single votes?

    python -m prism_jax experiments single_votes --source=DIR

The content score is the probe on words, fitted on all streams but one and tested on that one. Every vote on an offer is
an answer, and the person layer (`prism_jax.people.layer`) learns each annotator's own rate from their earlier answers.
Its parameters, and the Platt scaling of the content score, come from the annotators of the other streams. All offers of
a step are predicted before any vote of the step is seen. docs/acceptance_logs.md has the results.

The files do not name annotators. Within a stream the places in the list of votes are taken for people; a step with
fewer votes than others does not tell who is missing, so each number of votes has its own people. Between streams
nothing tells whether two annotators are the same, so they count as different.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy
from absl import flags
from etils import epath
from jaxtyping import Bool, Float64, Int64, Shaped

from prism_jax.decision import metrics
from prism_jax.decision.arrays import sigmoid
from prism_jax.decision.calibration import fit_platt
from prism_jax.decision.person import Belief, Population, optimism, predict, update
from prism_jax.decision.uncertainty import Bounds, Cells, Estimate, interval
from prism_jax.experiments.field.interface import Fold, Run
from prism_jax.experiments.field.material import Material
from prism_jax.experiments.field.probes import score_words
from prism_jax.experiments.field.tables import measure
from prism_jax.experiments.intervals import show_interval
from prism_jax.experiments.ranking import Ranked
from prism_jax.people.lanes import lanes
from prism_jax.people.layer import fit_population, prequential
from prism_jax.report.numbers import percent
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units
from prism_jax.scores import Scores
from prism_jax.scores.joining import joined
from prism_jax.streams import proactivebench

CONTENT, PERSON = "content", "content + person"
RATIOS = (0.5, 1.0, 2.0, 4.0)
"""Cost ratios r = C_FN / C_FA; C_FA is 1."""


class Votes(NamedTuple):
    """Single votes, in the order of streams, steps and offers."""

    stream: Shaped[np.ndarray, " votes"]
    step: Int64[np.ndarray, " votes"]  # number of the step in its stream
    person: Int64[np.ndarray, " votes"]  # code of the annotator
    p: Float64[np.ndarray, " votes"]  # probability of acceptance by the content score
    accepted: Float64[np.ndarray, " votes"]  # the vote, 1 or 0


class Predicted(NamedTuple):
    """What is known of each vote before any vote of its step is seen."""

    content: Float64[np.ndarray, " votes"]  # platt-scaled log-odds of the content score
    person: Float64[np.ndarray, " votes"]  # log-odds of the person layer
    variance: Float64[np.ndarray, " votes"]  # variance of the annotator's own rate
    populations: Float64[np.ndarray, "votes 4"]  # parameters of the layer for each vote, in the order of `Population`


class Turns(NamedTuple):
    """Steps as each annotator sees them."""

    top: Int64[np.ndarray, " turns"]  # vote on the offer that the content score ranks first; of equal ones the first
    number: Int64[np.ndarray, " turns"]  # how many steps of the annotator came before


def single_votes(scores: Scores) -> Votes:
    """Lists every vote on an offer; rows without votes are left out.

    The scores have `p_accept_fast` and votes, in the order of streams and steps. ValueError without any vote, or with
    votes of one stream only.
    """
    assert scores.p_accept_fast is not None, "the probe reads acceptance"
    ballots = [()] * len(scores) if scores.votes is None else [tuple(ballot or ()) for ballot in scores.votes]
    sizes = np.array([len(ballot) for ballot in ballots], np.int64)
    row = np.repeat(np.arange(len(scores)), sizes)
    stream = scores.stream.astype(str)[row]
    if len(streams := np.unique(stream)) < 2:
        raise ValueError(f"votes: found votes in {len(streams)} streams, expected at least 2")
    place = np.array([i for ballot in ballots for i in range(len(ballot))])
    keys = np.stack([np.unique(stream, return_inverse=True)[1], sizes[row], place])
    person = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    accepted = np.array([vote for ballot in ballots for vote in ballot], np.float64)
    return Votes(
        stream, scores.step[row].astype(np.int64), person, scores.p_accept_fast[row].astype(np.float64), accepted
    )


def predict_votes(votes: Votes) -> Predicted:
    """Predicts every vote; all parameters of a stream come from the other streams."""
    log_odds, places = scipy.special.logit(votes.p), lanes(votes.person)
    begins = _begins(votes)
    rows = len(votes.p)
    content, person, variance = np.empty(rows), np.empty(rows), np.empty(rows)
    populations = np.empty((rows, 4))
    for stream in np.unique(votes.stream):
        inside = votes.stream == stream
        platt = fit_platt(votes.p[~inside], votes.accepted[~inside])
        scaled = platt.of_log_odds(log_odds)
        population = fit_population(
            scaled, votes.accepted, votes.person, counted=~inside, places=places, calibrated=True
        )
        before = prequential(scaled, votes.accepted, votes.person, population, places=places).belief
        belief = Belief(before.mean[begins][inside], before.variance[begins][inside])
        content[inside] = scaled[inside]
        person[inside] = predict(belief, scaled[inside], population)
        variance[inside], populations[inside] = belief.variance, population
    return Predicted(content, person, variance, populations)


def _begins(votes: Votes) -> Int64[np.ndarray, " votes"]:
    """For each vote, the first vote of the same annotator at the same step."""
    _, first, back = np.unique(np.stack([votes.person, votes.step]), axis=1, return_index=True, return_inverse=True)
    return first[back.reshape(-1)]


def turns_of(votes: Votes) -> Turns:
    """One turn for each annotator and step, by annotator and in the order of steps."""
    order = np.lexsort((-votes.p, votes.step, votes.person))  # stable, so that the first of equal offers stays first
    person, step = votes.person[order], votes.step[order]
    new = (np.diff(person, prepend=-1) != 0) | (np.diff(step, prepend=-1) != 0)
    top = order[new]
    _, start, back = np.unique(votes.person[top], return_index=True, return_inverse=True)
    return Turns(top, np.arange(len(top)) - start[back])


def passes(log_odds: np.ndarray, variance: np.ndarray, ratio: float) -> Bool[np.ndarray, " turns"]:
    """The personal gate: p >= 1 / (1 + r), where doubt about the person counts in favour of an offer if r <= 1."""
    return log_odds + optimism(ratio) * np.sqrt(variance) >= -np.log(ratio)


def offers_where_answered(votes: Votes, predicted: Predicted, turns: Turns, ratio: float) -> Bool[np.ndarray, " turns"]:
    """The personal gate's decisions if it sees a vote only where it made the offer."""
    offers = np.zeros(len(turns.top), bool)
    people = int(votes.person.max()) + 1
    mean, variance = np.zeros(people), np.zeros(people)
    variance[votes.person] = predicted.populations[:, 2] ** 2
    for number in range(int(turns.number.max()) + 1):
        now = np.flatnonzero(turns.number == number)
        rows = turns.top[now]
        who = votes.person[rows]
        population = Population(*predicted.populations[rows].T)
        belief, log_odds = Belief(mean[who], variance[who]), predicted.content[rows]
        offers[now] = passes(np.asarray(predict(belief, log_odds, population)), belief.variance, ratio)
        after = update(belief, log_odds, votes.accepted[rows], population)
        seen = offers[now]
        mean[who[seen]], variance[who[seen]] = after.mean[seen], after.variance[seen]
    return offers


def cost(offers: Bool[np.ndarray, " turns"], accepted: Float64[np.ndarray, " turns"], ratio: float) -> np.ndarray:
    """Realised cost of each turn: 1 for an offer that is rejected, r for silence that loses an accepted one."""
    return metrics.step_costs(offers, accepted, accepted, 1.0, ratio)


def change(personal: np.ndarray, blind: np.ndarray, stream: np.ndarray, resamples: int) -> Estimate:
    """Relative change of the total cost, with a 95 % interval over streams."""
    unit = np.unique(stream, return_inverse=True)[1]
    sums = np.stack([np.bincount(unit, personal), np.bincount(unit, blind)], axis=1)
    return interval(
        Cells.of_units(sums),
        lambda total: total[..., 0] / total[..., 1] - 1,
        bounds=Bounds(-1.0, np.inf),
        resamples=resamples,
        seed=0,
    )


def cost_table(votes: Votes, predicted: Predicted, resamples: int) -> Table:
    """The personal gate beside the person-blind one, with full feedback and with feedback on offers only."""
    turns = turns_of(votes)
    accepted, stream = votes.accepted[turns.top], votes.stream[turns.top]
    log_odds, variance = predicted.person[turns.top], predicted.variance[turns.top]
    full: list[Row] = []
    offered: list[Row] = []
    for ratio in RATIOS:
        blind = predicted.content[turns.top] >= -np.log(ratio)
        decided = (
            (full, passes(log_odds, variance, ratio)),
            (offered, offers_where_answered(votes, predicted, turns, ratio)),
        )
        before = cost(blind, accepted, ratio)
        for rows, personal in decided:
            after = cost(personal, accepted, ratio)
            relative = change(after, before, stream, resamples)
            cells = (percent(blind.mean()), percent(personal.mean()), f"{before.mean():.3f}", f"{after.mean():.3f}")
            rows.append(Row(f"C_FN / C_FA = {ratio:g}", (*cells, _signed(relative))))
    columns = (
        Column("speaks, blind", "Share of turns at which the person-blind gate offers.", "%"),
        Column("speaks, personal", "The same of the personal gate.", "%"),
        Column("cost, blind", "Mean realised cost per annotator and step."),
        Column("cost, personal", "The same of the personal gate."),
        Column("change", "Of the personal gate's cost, relative to the blind one's.", "%"),
    )
    sections = (
        Section("every vote is seen after its step", tuple(full)),
        Section("a vote is seen only where the gate offered", tuple(offered)),
    )
    note = (
        f"{len(turns.top):,} turns of annotator and step; both gates decide about the offer that the content score "
        f"ranks first. {over_units(len(set(votes.stream.tolist())))}, in brackets."
    )
    return Table("Cost of a personal gate", "costs", columns, sections, note)


def _signed(relative: Estimate) -> str:
    """A change in percent with its interval, each with its sign."""
    return show_interval(Estimate(*(100 * end for end in relative[:3])), digits=1, sign="+").replace("-", "−")


def study(scores: Scores, resamples: int) -> list[Table]:
    """Measures the predictions, and the costs of the gates.

    The scores are as in `single_votes`, from a content score that did not see a row's stream. Whole streams are
    resampled.
    """
    votes = single_votes(scores)
    predicted = predict_votes(votes)
    ranked = {}
    for name, log_odds in ((CONTENT, predicted.content), (PERSON, predicted.person)):
        p = np.asarray(sigmoid(log_odds))
        ranked[name] = Ranked(p, p, votes.accepted, votes.stream)
    people = len(np.unique(votes.person))
    title = f"Single votes of {people} annotators, told apart by stream and place in the list of votes"
    return [measure(ranked, title, resamples), cost_table(votes, predicted, resamples)]


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("source", None, "Folder with ProactiveBench's repository.")
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Predicts every vote from the others."""
    source, run = Material("proactivebench", tuple(proactivebench.load(flags.FLAGS.source))), Run(epath.Path())
    folds = (fold for fold in source.folds(len(source.units)) if isinstance(fold, Fold))
    scores = joined([source.labelled(score_words(fold, run)) for fold in folds])
    return study(scores, flags.FLAGS.resamples)
