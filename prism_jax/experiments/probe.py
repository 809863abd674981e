"""How far do words and a frozen model's states go on ProactiveBench's human labels, without fine-tuning?

    python -m prism_jax experiments probe --source=DIR --workdir=DIR [--weights=GGUF]

Every stream is tested once, alone; everything else is fitted on the other streams: the IDFs, the regressions, and, on
inner folds of them, the maps to probabilities. The settings are the defaults of `prism_jax.probe.probe_config`. The
rows are TF-IDF of words with its strength chosen on inner folds (`prism_jax.experiments.field.tfidf`), the probe on
words, and, with --weights, the probe on words and states. probe_words.parquet and probe_states.parquet in the workdir
are their out-of-fold scores, which `prism_jax.experiments.human_labels --scores=NAME=FILE` takes. docs/probe.md has the
results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import numpy as np
from absl import flags
from etils import epath
from jaxtyping import Float

from prism_jax.evaluation.protocol import calibrate
from prism_jax.experiments.field.tfidf import outer_folds, score_words_nested
from prism_jax.experiments.proactivebench_results import COLUMNS, Fold, signal_of
from prism_jax.experiments.ranking import MEASURES, Ranked, ece_of_exact, intervals
from prism_jax.probe.fitting import StreamInputs, fit_probe, score
from prism_jax.probe.kept_states import states_of
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.words import describe_all
from prism_jax.report.numbers import show_estimate
from prism_jax.report.table import Row, Section, Table
from prism_jax.report.tables import over_units
from prism_jax.scores import Scores, write_scores
from prism_jax.scores.labels import Signal
from prism_jax.streams import Stream, proactivebench
from prism_jax.streams.proactivebench_source import Need

TFIDF, WORDS, STATES = "TF-IDF of words and bigrams", "probe on words", "probe on words and states"
FILES = {WORDS: "probe_words.parquet", STATES: "probe_states.parquet"}
States = Sequence[Float[np.ndarray, "offers width"]]


def score_probe(streams: Sequence[Stream], states: States | None, config: FitConfig, reading: StatesConfig) -> Scores:
    """Scores every stream by a probe that was fitted on all the others, of words alone where there are no states.

    One row per offer, split "test"; the fold is the number of the stream.
    """
    seen = [
        StreamInputs(words, None if states is None else states[number])
        for number, words in enumerate(describe_all(streams))
    ]
    rows = []
    for fold, left_out in enumerate(seen):
        probe = fit_probe([kept for kept in seen if kept is not left_out], config, reading)
        rows += list(score(probe, [left_out], split="test", fold=fold))
    return Scores.from_rows(rows)


def measure(
    ranked: Mapping[str, Ranked], title: str, resamples: int, pairs: Iterable[tuple[str, str]] | None = None
) -> Table:
    """Measures of every row, and of the second minus the first of each pair; without pairs, of all neighbours."""
    names = list(ranked)
    rows = [
        Row(name, tuple(show_estimate(intervals(signal, resamples=resamples)[of]) for of in MEASURES))
        for name, signal in ranked.items()
    ]
    for before, after in itertools.pairwise(names) if pairs is None else pairs:
        differences = intervals(ranked[before], ranked[after], resamples=resamples)
        rows.append(Row(f"{after} minus {before}", tuple(show_estimate(differences[of], sign=True) for of in MEASURES)))
    streams = len(set(ranked[names[0]].stream.tolist()))
    labels, exact = ranked[names[0]].y, show_estimate(ece_of_exact(ranked[names[-1]].p))
    return Table(
        f"{title} ({len(labels)} labels, {labels.mean():.0%} positive)",
        "",
        COLUMNS,
        (Section("", tuple(rows)),),
        f"{over_units(streams)}, in brackets. If the last method's p were exact, its ECE would be {exact}: "
        "labels drawn from p.",
    )


def score_tfidf(streams: Sequence[Stream]) -> list[Fold]:
    """Scores every stream by TF-IDF fitted on the others, with temperatures that are fitted on inner folds."""
    tables = [score_words_nested(*pair, fold)[0] for fold, pair in enumerate(outer_folds(streams, None))]
    return [Fold(table, calibrate(table)) for table in tables]


def ranked_by_probe(scores: Scores, signal: Signal) -> Ranked:
    """A probe's own probabilities, which need no temperature; both fits of one are by nested predictions."""
    steps = scores.candidate == 0 if signal == "need" else np.ones(len(scores), bool)
    y = scores.y_need if signal == "need" else scores.y_accept
    p = scores.p_need_fast if signal == "need" else scores.p_accept_fast
    assert y is not None and p is not None, "ProactiveBench is labelled, and a probe reads both signals"
    labelled = steps & ~np.isnan(y)
    return Ranked(p[labelled], p[labelled], y[labelled], np.asarray(scores.stream, str)[labelled])


def study(
    source: str, needs: Sequence[Need], workdir: epath.Path, reading: StatesConfig, resamples: int
) -> list[Table]:
    """Makes the table of acceptance, and one of need for each definition.

    The scores with the first definition of need, and the states, are written into the workdir. The source is a folder
    with ProactiveBench's repository. A reading without weights is words alone.
    """
    tables: list[Table] = []
    states: States | None = None
    for need in needs:
        streams = proactivebench.load(source, need=need)
        if reading.weights and states is None:
            states = states_of(streams, reading, workdir / "states")
        scored = {WORDS: score_probe(streams, None, FitConfig(), reading)}
        if states is not None:
            scored[STATES] = score_probe(streams, states, FitConfig(), reading)
        folds = score_tfidf(streams)
        signals: tuple[Signal, ...] = ("need",) if tables else ("accept", "need")
        for signal in signals:
            ranked = {TFIDF: signal_of(folds, signal)}
            ranked |= {name: ranked_by_probe(scores, signal) for name, scores in scored.items()}
            title = "Acceptance of an offer" if signal == "accept" else f"Need at a step, {need}"
            tables.append(measure(ranked, title, resamples))
        if need == needs[0]:
            for name, scores in scored.items():
                write_scores(workdir / FILES[name], scores)
    return tables


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("source", None, "Folder with ProactiveBench's repository.")
    flags.DEFINE_string("workdir", None, "Folder for scores, states and tables.")
    flags.DEFINE_string("weights", "", "Weights of the frozen model; empty reads words alone.")
    flags.DEFINE_multi_enum("need", get_args(Need), get_args(Need), "Definitions of need; each has a table.")
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Leaves every stream out once."""
    options = flags.FLAGS
    workdir = epath.Path(options.workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    return study(options.source, options.need, workdir, StatesConfig(weights=options.weights), options.resamples)
