"""ProactiveBench's human labels: does the two-signal gate beat p_accept alone at the same speak rate?

    python -m prism_jax experiments human_labels --source=DIR

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
from prism_jax.evaluation.replay import MATCHED, RATIOS, FoldReplay, Gain, PolicyReplay, gains, policy_rows, replay_fold
from prism_jax.evaluation.splits import CALIBRATION, TEST, rows_of
from prism_jax.experiments.annotators import annotator_rows, need_against_others, replay_annotators, votes_against_votes
from prism_jax.experiments.field.tfidf import outer_folds, score_words_nested
from prism_jax.experiments.ranking import Ranked, intervals
from prism_jax.report.numbers import percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.joining import read_all
from prism_jax.scores.labels import Signal, read
from prism_jax.streams import Step, Stream, proactivebench
from prism_jax.streams.edit import map_steps
from prism_jax.streams.proactivebench_source import Leakage, Need, measure_leakage
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


def policy_table(
    rows: Mapping[float, Sequence[PolicyReplay]], title: str = "Policies replayed on human labels", note: str = ""
) -> Table:
    """Every policy at each cost ratio."""
    columns = (
        Column("speak rate", "Share of steps with an offer.", "%"),
        Column("accepted", "Share of the offers that are accepted.", "%"),
        Column("realised cost", "Offers that are not accepted, and silence where an accepted offer was needed."),
        Column("gold cost", "The same, where an offer that was not needed counts as not accepted."),
    )
    sections = tuple(
        Section(
            f"C_FN / C_FA = {ratio:g}",
            tuple(
                Row(
                    row.name,
                    (
                        percent(row.speak_rate),
                        percent(row.precision),
                        show_estimate(row.realised),
                        show_estimate(row.gold),
                    ),
                )
                for row in replays
            ),
        )
        for ratio, replays in rows.items()
    )
    replays = next(iter(rows.values()))
    return Table(title, "policy", columns, sections, note + _note(row.realised for row in replays))


def annotator_table(rows: Mapping[float, Sequence[PolicyReplay]]) -> Table:
    """One annotator's decisions, judged by the other annotators."""
    note = (
        "One row per annotator and step: the others' votes are the labels, so costs are not those of the table above. "
        "An annotator offers what they would accept; of several offers, any. "
    )
    return policy_table(rows, "One annotator decides for the others", note)


def gain_table(gains: Sequence[Gain]) -> Table:
    """What the two-signal gate costs more than p_accept alone."""
    columns = (Column("realised cost", "Of the gate, minus that of p_accept alone."), Column("gold cost", "Likewise."))
    sections = []
    for method in dict.fromkeys(gain.method for gain in gains):
        for matching in dict.fromkeys(gain.matching for gain in gains):
            rows = tuple(
                Row(
                    "mean over the ratios" if gain.ratio is None else f"C_FN / C_FA = {gain.ratio:g}",
                    (show_estimate(gain.realised, sign=True), show_estimate(gain.gold, sign=True)),
                    strong=gain.ratio is None,
                )
                for gain in gains
                if (gain.method, gain.matching) == (method, matching)
            )
            words = "exactly the same speak rate" if matching == MATCHED else "threshold of the training streams"
            sections.append(Section(f"{method}, {words}", rows))
    note = _note(gain.realised for gain in gains)
    title = "The gate minus p_accept alone (below 0: the gate is cheaper)"
    return Table(title, "costs", columns, tuple(sections), note, mark="mean")


def ranking_table(estimates: Mapping[str, Mapping[str, Estimate]], title: str) -> Table:
    """AUROCs of the raw signals, pooled and within streams."""
    columns = (
        Column("AUROC, pooled", "Over all pairs of a positive and a negative label."),
        Column("AUROC, within streams", "Over the pairs within one stream."),
    )
    rows = tuple(
        Row(name, (show_estimate(measures["auroc"]), show_estimate(measures["auroc_within"])))
        for name, measures in estimates.items()
    )
    note = _note(measures["auroc"] for measures in estimates.values())
    return Table(title, "ranked by", columns, (Section("", rows),), note)


def _note(intervals: Iterable[Estimate]) -> str:
    """The note of a table, with the number of streams of its intervals."""
    units = max((int(interval.units) for interval in intervals), default=0)
    over = over_units(units)
    return f"{over[0].upper()}{over[1:]}, in brackets; costs per step in units of C_FA."


def leakage_table(leakage: Leakage) -> Table:
    """How many official test rows share something with the official training rows."""
    columns = (Column("rows"), Column("share", "Of the official test rows.", "%"))
    words = {
        "rows": "all official test rows",
        "same_stream": "their stream has training rows",
        "same_step": "their step, with its whole history, has training rows",
        "same_need": "a training row states their step's need label",
        "same_row": "the same offer or silence at the same step is a training row",
    }
    rows = tuple(
        Row(
            text,
            (str(getattr(leakage, name)), percent(getattr(leakage, name) / leakage.rows if leakage.rows else None)),
        )
        for name, text in words.items()
    )
    return Table("What the official split leaks", "official test rows", columns, (Section("", rows),))


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
