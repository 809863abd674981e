"""ProactiveBench's human labels: does the two-signal gate beat p_accept alone at the same speak rate?

    python -m prism_jax.experiments human_labels --source=DIR

Every stream is tested once, by default alone (--folds=K groups them), and everything else is fitted and chosen on the
other streams. The words baseline needs only scikit-learn. --scores=NAME=FILE adds the out-of-fold scores of anybody's
agent on the same steps and offers. docs/proactivebench.md describes the protocol and its result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from absl import flags

from prism_jax.decision.uncertainty import Estimate
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.replay import RATIOS, FoldReplay, gains, policy_rows, replay_fold
from prism_jax.evaluation.splits import CALIBRATION, TEST, rows_of
from prism_jax.experiments.annotators import annotator_rows, need_against_others, replay_annotators, votes_against_votes
from prism_jax.experiments.nested_words import outer_folds, score_words_nested
from prism_jax.experiments.ranking import Ranked, intervals
from prism_jax.report.human_labels import annotator_table, gain_table, leakage_table, policy_table, ranking_table
from prism_jax.report.table import Table
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.joining import read_all
from prism_jax.scores.labels import Signal, read
from prism_jax.streams import Step, Stream, proactivebench
from prism_jax.streams.edit import map_steps
from prism_jax.streams.proactivebench import Need
from prism_jax.streams.proactivebench_source import measure_leakage
from prism_jax.training.pathways.supervision import with_soft_labels

Labels = Literal["majority", "votes"]
WORDS = "words"
SIGNALS: tuple[Signal, ...] = ("accept", "need")


def study(
    streams: Sequence[Stream],
    *,
    folds: int | None,
    labels: Labels,
    scores: Mapping[str, Scores] | None = None,
    ratios: Sequence[float] = RATIOS,
    resamples: int = 10_000,
) -> list[Table]:
    """Runs the protocol on streams with hard labels and raw votes, and returns its tables.

    Without a number of outer folds, one stream is left out at a time. The labels `votes` are the share of votes, which
    AUROCs round. `scores` are further methods by name: raw signals on the same steps and offers, from models that did
    not see a step's stream; their labels are not read. ScoresError for scores that lack a judged offer, or have other
    votes on it.
    """
    judged = [in_fixed_order(stream) for stream in streams]
    used = soft(judged) if labels == "votes" else judged
    divided = outer_folds(used, folds)
    by_method: dict[str, list[Scores]] = {
        WORDS: [score_words_nested(*pair, fold)[0] for fold, pair in enumerate(divided)]
    }
    for name, table in (scores or {}).items():
        labelled = with_labels(table, soft(streams) if labels == "votes" else streams)
        by_method[name] = [
            split_by(labelled, [stream.id for stream in test], fold) for fold, (_, test) in enumerate(divided)
        ]
    replays: dict[str, Sequence[FoldReplay]] = {
        name: [replay_fold(table, calibrate(table)) for table in tables] for name, tables in by_method.items()
    }
    policies = {ratio: policy_rows(dict(replays), ratio, resamples=resamples) for ratio in ratios}
    people = replay_annotators(judged)
    ceiling = {ratio: annotator_rows(people, ratio, resamples=resamples) for ratio in ratios} if people else {}
    return [
        *(_ranking(by_method, judged, signal, resamples) for signal in SIGNALS),
        policy_table(policies),
        gain_table(gains(dict(replays), ratios=ratios, resamples=resamples)),
        *([annotator_table(ceiling)] if people else []),
    ]


def in_fixed_order(stream: Stream) -> Stream:
    """The stream with each step's offers in the order of their texts, which does not tell their labels."""

    def ordered(step: Step) -> Step:
        return dataclasses.replace(
            step,
            candidates=tuple(
                sorted(step.candidates, key=lambda offer: (offer.text or "", offer.votes, offer.y_accept or 0))
            ),
        )

    return map_steps(stream, ordered)


def soft(streams: Sequence[Stream]) -> list[Stream]:
    """The streams with shares of votes as labels: of those who accept an offer, and of those who wanted one at a step.

    A step without votes on silence keeps its label: nobody ticked an offer there.
    """

    def needed(step: Step) -> Step:
        return dataclasses.replace(step, y_need=1 - sum(step.votes) / len(step.votes)) if step.votes else step

    return [map_steps(stream, needed) for stream in with_soft_labels(streams)]


def with_labels(scores: Scores, streams: Sequence[Stream]) -> Scores:
    """The scores' signals with the streams' labels; rows of offers that nobody judged are left out.

    ScoresError names stream, step and offer, if a judged offer is missing, twice, or has other votes; or no need.
    """
    if scores.p_need_fast is None:
        raise ScoresError("found no such column, expected it: people judged need too", "p_need_fast")
    rows: dict[tuple[str, int, int], int] = {}
    keys = zip(scores.stream.tolist(), scores.step.tolist(), scores.candidate.tolist(), strict=True)
    for position, key in enumerate(keys):
        if key in rows:
            raise ScoresError(f"found stream {key[0]!r}, step {key[1]}, candidate {key[2]} twice, expected it once")
        rows[key] = position
    table: list[dict[str, Any]] = []
    for stream in streams:
        for number, step in enumerate(stream.steps):
            for index, offer in enumerate(step.candidates):
                if offer.y_accept is None:
                    continue
                place = f"stream {stream.id!r}, step {number}, candidate {index}"
                row = rows.get((stream.id, number, index))
                if row is None:
                    raise ScoresError(f"found no row for {place}, expected one for every judged offer")
                if scores.votes is not None and tuple(scores.votes[row] or ()) not in ((), offer.votes):
                    raise ScoresError(
                        f"{place}: found the votes of another offer, expected {list(offer.votes)}", "votes"
                    )
                table.append(
                    {
                        "stream": stream.id,
                        "step": number,
                        "candidate": index,
                        "domain": stream.domain,
                        "split": TEST,
                        "p_need_fast": float(scores.p_need_fast[row]),
                        "p_accept_fast": float(scores.p_accept_fast[row]),
                        "y_need": step.y_need,
                        "y_accept": offer.y_accept,
                        "votes": list(offer.votes) or None,
                        **({} if scores.calibrated is None else {"calibrated": True}),
                    }
                )
    return Scores.from_rows(table)


def split_by(scores: Scores, test: Sequence[str], fold: int) -> Scores:
    """The scores with these streams as test split and all others as calibration split."""
    inside = np.isin(scores.stream.astype(str), list(test))
    split = np.where(inside, TEST, CALIBRATION)
    columns = {name: column for name, column in scores.columns().items() if name not in ("split", "fold")}
    return Scores.from_columns({**columns, "split": split.astype(object), "fold": np.full(len(split), fold)})


def _ranking(
    by_method: Mapping[str, Sequence[Scores]], judged: Sequence[Stream], signal: Signal, resamples: int
) -> Table:
    """AUROCs of each method's raw signal, and of one annotator against the others."""
    measured: dict[str, Mapping[str, Estimate]] = {}
    for name, tables in by_method.items():
        ranked = Ranked.joined([_ranked(table, signal) for table in tables])
        measured[name] = intervals(ranked, resamples=resamples)
    human = votes_against_votes(judged) if signal == "accept" else need_against_others(judged)
    if 0 < human.y.mean() < 1:
        measured["one annotator, against the others"] = intervals(human, resamples=resamples)
    return ranking_table(measured, {"accept": "Acceptance of an offer", "need": "Need at a step"}[signal])


def _ranked(table: Scores, signal: Signal) -> Ranked:
    """One signal on the test streams of a fold; a share of votes of one half is no label, another rounds to one."""
    readings = read(rows_of(table, TEST), signal, "fast")
    known = ~np.isnan(readings.y) & (readings.y != 0.5)
    p = readings.p[known]
    return Ranked(p, p, (readings.y[known] > 0.5).astype(float), np.asarray(readings.rows.stream, str)[known])


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("source", None, "Folder with ProactiveBench's repository.")
    flags.DEFINE_string("data_dir", None, "Folder in which prepared data is cached; ~/tensorflow_datasets if unset.")
    flags.DEFINE_integer("folds", None, "Number of outer folds; by default one per stream.", lower_bound=2)
    flags.DEFINE_enum("need", "strict", get_args(Need), "Definition of need.")
    flags.DEFINE_enum("labels", "majority", get_args(Labels), "Majorities as labels, or shares of votes.")
    flags.DEFINE_multi_string("scores", [], "NAME=FILE|FOLDER|GLOB with out-of-fold scores of another method.")
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Compares policies, and measures how streams leak into each other."""
    options = flags.FLAGS
    streams = proactivebench.load(options.source, options.data_dir, need=options.need)
    scores = {}
    for entry in options.scores:
        name, _, path = entry.partition("=")
        if not name or not path or name == WORDS or name in scores:
            raise ValueError(f"scores: found {entry!r}, expected NAME=FILE with a new name")
        scores[name] = read_all(path)
    print(f"{len(streams)} streams, {sum(len(stream.steps) for stream in streams)} steps; need: {options.need}")
    return [
        *study(streams, folds=options.folds, labels=options.labels, scores=scores, resamples=options.resamples),
        leakage_table(measure_leakage(options.source)),
    ]
