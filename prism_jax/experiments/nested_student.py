"""Fine-tunes a pretrained student on ProactiveBench with everything chosen inside each fold, and stacks it on words.

    python -m prism_jax experiments nested_student --weights=PATH.gguf --source=DIR --workdir=DIR

There are four outer folds of whole streams. In each, on the streams that are not tested:

1.  a frozen probe says after which of BLOCKS the answer slot is worth most: off its state there, a regression on inner
    folds of whole streams ranks the offers within streams that it did not see;
2.  the student keeps the blocks up to that one, and its top blocks are trained on the training streams;
3.  the probe on words is fitted, and the student is stacked on it, p = sigmoid(a + b * mean of the floor's log-odds and
    of c + d * the student's), with four numbers of the calibration streams. c and d put the student on the scale of
    probabilities, so that one that knows nothing (d = 0) counts for nothing.

The test streams' labels are read for the measures alone. Everything else about the student is as in its config. Every
training is an ordinary run in a folder of its own, so an interrupted study resumes when started again.
docs/proactivebench.md has the results.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from absl import flags
from etils import epath
from jaxtyping import Float
from ml_collections import config_flags

from prism_jax.decision.arrays import log_odds
from prism_jax.decision.calibration import CalibrationConfig, Platt
from prism_jax.evaluation.protocol import calibrate
from prism_jax.evaluation.splits import CALIBRATION, TEST, rows_of
from prism_jax.experiments.field.measures import SIGNALS, CalibratedFold, signal_of
from prism_jax.experiments.field.tables import measure
from prism_jax.experiments.field.tfidf import INNER, outer_folds, score_words_nested
from prism_jax.experiments.ranking import MEASURES, Ranked, measures
from prism_jax.probe import fitting
from prism_jax.probe.fitting import StreamInputs, accept_labels, fit_probe, score
from prism_jax.probe.kept_states import states_of
from prism_jax.probe.logistic import Linear, fit_platt_with_ridge, fit_states
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.words import describe
from prism_jax.report.table import Table
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.runtime.files import parse_json, read_lines, write_json
from prism_jax.runtime.provenance import provenance
from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.scores.joining import joined
from prism_jax.scores.labels import Signal
from prism_jax.streams import Stream
from prism_jax.streams.sources import load_splits
from prism_jax.streams.splits import Splits
from prism_jax.training.run import open_run, resolve
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

BLOCKS = (6, 12, 18, 24, 30)
"""The blocks that are compared, of SmolLM2's 30; fixed before any result was known."""
TRAINED = 4
"""Number of upper blocks that are trained, as in the study that is not nested."""

SAVED = 20
"""Number of training steps after which an interrupted fold resumes."""

TFIDF, WORDS, FROZEN = "TF-IDF of words and bigrams", "probe on words (NC)", "probe on words and frozen states"
TUNED, STACKED, STACKED_ON_FROZEN = (
    "SmolLM2, fine-tuned",
    "SmolLM2 stacked on NC",
    "SmolLM2 stacked on words and states",
)
PAIRS = ((WORDS, STACKED), (FROZEN, STACKED_ON_FROZEN), (WORDS, TUNED), (WORDS, FROZEN), (TFIDF, WORDS))
"""The differences in the tables, second minus first; the first is the question of the study."""
FILES = {
    WORDS: "words.parquet",
    FROZEN: "frozen.parquet",
    TUNED: "tuned.parquet",
    STACKED: "stacked.parquet",
    STACKED_ON_FROZEN: "stacked_on_frozen.parquet",
}


@dataclasses.dataclass(frozen=True)
class FoldResult:
    """What one outer fold gives."""

    # Test rows of each method in `FILES`. The student's are raw, all others are the method's probabilities.
    scores: Mapping[str, Scores]
    ranked: Mapping[str, Mapping[Signal, Ranked]]  # each signal of each method on the test rows
    about: Mapping[str, Any]  # what was chosen on the other streams, as plain data


def run_fold(config: RunConfig, states: States, reading: StatesConfig, trained: int, folder: epath.Path) -> FoldResult:
    """Chooses the block, trains, stacks and scores on one fold.

    The config is the student's run on this fold; its block and its frozen parameters are set here. `reading` has the
    blocks that are compared, and `trained` is the number of upper blocks that are trained. ConfigError if the folder
    holds a run with another config.
    """
    fold, splits = config.data.fold, load_splits(config.data, config.simulator)
    untested = sorted((*splits.train, *splits.calibration), key=lambda stream: stream.id)
    worth = worth_of_blocks(untested, states, reading)
    block = best_block(worth)
    student = train_student(up_to(config, block, trained), folder)
    words = score_probe_on(splits, None, reading, fold)
    frozen = score_probe_on(splits, states_after(states, reading, block), reading, fold)
    stacked, stacks = stack(words, student)
    on_frozen, _ = stack(frozen, student)
    tfidf = score_words_nested(untested, splits.test, fold)[0]
    tables = {WORDS: words, FROZEN: frozen, TUNED: student, STACKED: stacked, STACKED_ON_FROZEN: on_frozen}
    scores = {name: rows_of(table, TEST) for name, table in tables.items()}
    raw = {
        TFIDF: CalibratedFold(tfidf, calibrate(tfidf)),
        TUNED: CalibratedFold(student, calibrate(student, CalibrationConfig(calibrator="platt"))),
    }
    ranked = {
        name: {
            signal: signal_of([raw[name]], signal) if name in raw else ranked_by_probe(scores[name], signal)
            for signal in SIGNALS
        }
        for name in (TFIDF, *tables)
    }
    about = {
        "test": [stream.id for stream in splits.test],
        "worth": {str(number): value for number, value in worth.items()},
        "block": block,
        "stacks": {signal: dataclasses.asdict(fitted) for signal, fitted in stacks.items()},
        "epoch_seconds": list(epoch_seconds(folder, len(splits.train) / config.training.batch)),
    }
    return FoldResult(scores, ranked, about)


def train_student(config: RunConfig, folder: epath.Path) -> Scores:
    """Trains a run unless it is finished, and returns its scores on the calibration and test streams.

    ConfigError if the folder holds a run with another config.
    """
    workdir, path, resolved = Workdir(folder), folder / "scores.parquet", resolve(config)
    if not path.exists():
        # What trains is loaded once there are weights to start from.
        from prism_jax.runs.pipeline import train_and_evaluate

        train_and_evaluate(config, workdir)
    opened = open_run(resolved, workdir)
    opened.files.claim(opened.config)
    return read_scores(path)


def with_sources(config: RunConfig, source: str, weights: str) -> RunConfig:
    """Returns the config with this source of streams and these weights; an empty string keeps the config's own."""
    data = dataclasses.replace(config.data, source=source or config.data.source)
    training = dataclasses.replace(config.training, start=weights or config.training.start)
    return dataclasses.replace(config, data=data, training=training)


def epoch_seconds(folder: epath.Path, steps: float) -> tuple[float, ...]:
    """Computes the duration of each whole epoch of a run in seconds, from the timings.jsonl of its folder.

    The first epoch includes what happens once: compiling, and computing the features of the frozen blocks. The number
    of steps per epoch need not be an integer.
    """
    seconds = [parse_json(line, f"{folder}: timings")["seconds"] for _, line in read_lines(folder / "timings.jsonl")]
    ends = [round(steps * epoch) for epoch in range(int(len(seconds) / steps) + 1)]
    return tuple(sum(seconds[start:end]) for start, end in itertools.pairwise(ends))


def ranked_by_probe(scores: Scores, signal: Signal) -> Ranked:
    """A probe's own probabilities, which need no temperature; both fits of one are by nested predictions."""
    steps = scores.candidate == 0 if signal == "need" else np.ones(len(scores), bool)
    y = scores.y_need if signal == "need" else scores.y_accept
    p = scores.p_need_fast if signal == "need" else scores.p_accept_fast
    assert y is not None and p is not None, "ProactiveBench is labelled, and a probe reads both signals"
    labelled = steps & ~np.isnan(y)
    return Ranked(p[labelled], p[labelled], y[labelled], np.asarray(scores.stream, str)[labelled])


def up_to(config: RunConfig, block: int, trained: int) -> RunConfig:
    """The run whose student ends after a block and trains the `trained` blocks up to it."""
    lower = "|".join(map(str, range(block - trained)))
    frozen = ("embedding", *([f"layers/({lower})/.*"] if lower else []))
    return dataclasses.replace(config, training=dataclasses.replace(config.training, start_blocks=block, frozen=frozen))


def score_probe_on(splits: Splits, states: States | None, reading: StatesConfig, fold: int) -> Scores:
    """Scores a fold by probes that see as much as they may, of words alone where there are no states.

    The calibration rows, on which the stack is fitted, are scored by a probe on the training streams; the test rows are
    scored by a probe on the training and the calibration streams.
    """

    def seen(streams: Sequence[Stream]) -> list[StreamInputs]:
        return [StreamInputs(describe(stream), None if states is None else states[stream.id]) for stream in streams]

    train, calibration, test = seen(splits.train), seen(splits.calibration), seen(splits.test)
    first = fit_probe(train, FitConfig(), reading)
    second = fit_probe([*train, *calibration], FitConfig(), reading)
    return Scores.from_rows(
        [
            *score(first, calibration, split="calibration", fold=fold),
            *score(second, test, split="test", fold=fold),
        ]
    )


def study(
    config: RunConfig,
    workdir: epath.Path,
    blocks: Sequence[int] = BLOCKS,
    trained: int = TRAINED,
    resamples: int = 10_000,
) -> list[Table]:
    """Runs every fold, writes choices.json and the out-of-fold scores of each method, and makes a table per signal.

    The number of folds is the config's. The workdir also holds the states and one folder per run. The blocks are
    ascending, each at least `trained`, the number of upper blocks that are trained.

    Raises:
      ConfigError: for a config without weights to start from, or a folder that holds a run with another config.
    """
    if not config.training.start:
        raise ConfigError("training.start: found none, expected the weights that are fine-tuned")
    if min(blocks) < trained:
        raise ValueError(f"blocks: found {min(blocks)}, expected at least {trained}, the number that is trained")
    reading = reading_of(config, blocks)
    states = read_all(config, reading, workdir / "states")
    results = []
    for fold in range(config.data.folds):
        data = dataclasses.replace(config.data, fold=fold)
        folder = workdir / f"fold{fold}"
        results.append(run_fold(dataclasses.replace(config, data=data), states, reading, trained, folder))
        write_json(
            workdir / "choices.json", {"made": provenance(), "folds": [dict(result.about) for result in results]}
        )
    for name, file in FILES.items():
        write_scores(workdir / file, joined([result.scores[name] for result in results]))
    titles: dict[Signal, str] = {"accept": "Acceptance of an offer", "need": f"Need at a step, {config.data.need}"}
    return [
        measure(
            {name: Ranked.joined([result.ranked[name][signal] for result in results]) for name in results[0].ranked},
            title,
            resamples,
            PAIRS,
        )
        for signal, title in titles.items()
    ]


def reading_of(config: RunConfig, blocks: Sequence[int]) -> StatesConfig:
    """The frozen model as the student sees it: the same weights, prompt and context."""
    weights, system, context = config.training.start, config.prompt.system, config.packing.context
    return StatesConfig(weights=weights, blocks=tuple(blocks), system=system, context=context)


def read_all(config: RunConfig, reading: StatesConfig, folder: epath.Path) -> States:
    """States of all streams; they depend on no label and on no fold."""
    splits = load_splits(config.data, config.simulator)
    streams = sorted((*splits.train, *splits.calibration, *splits.test), key=lambda stream: stream.id)
    return dict(zip((stream.id for stream in streams), states_of(streams, reading, folder), strict=True))


States = Mapping[str, Float[np.ndarray, "_ _"]]
"""[offers, width] states of each stream, by its id."""


def worth_of_blocks(streams: Sequence[Stream], states: States, reading: StatesConfig) -> dict[int, float]:
    """Computes the AUROC of acceptance within streams, out of inner folds, for the answer slot after each block.

    `streams` are training streams with their labels. `states` are what `prism_jax.probe.kept_states` read of them at
    `reading.blocks`; other streams are not looked at.

    Raises:
      ValueError: if the training streams of an inner fold have labels of one kind only.
    """
    inner = outer_folds(streams, min(INNER, len(streams)))
    return {block: _worth(inner, _slots(streams, states, reading, block), reading) for block in reading.blocks}


def best_block(worth: Mapping[int, float]) -> int:
    """The block of the highest worth, the lowest such block if several are equal."""
    return max(sorted(worth), key=lambda block: worth[block])


def states_after(states: States, reading: StatesConfig, block: int) -> States:
    """The columns of one block: the mean over the offer's own tokens, and the answer slot."""
    place = reading.blocks.index(block)
    count = len(reading.blocks)
    return {name: np.split(columns, count, axis=1)[place] for name, columns in states.items()}


def _slots(streams: Sequence[Stream], states: States, reading: StatesConfig, block: int) -> States:
    """The answer slots alone."""
    own = states_after({stream.id: states[stream.id] for stream in streams}, reading, block)
    return {name: columns[:, columns.shape[1] // 2 :] for name, columns in own.items()}


def _worth(inner: Sequence[tuple[list[Stream], list[Stream]]], slots: States, reading: StatesConfig) -> float:
    """AUROC within streams of one block's slots, over the held streams of all inner folds."""
    names: list[str] = []
    log_odds, labels = [], []
    for train, held in inner:
        fitted = _fit(train, slots, reading)
        for stream in held:
            names.append(stream.id)
            log_odds.append(fitted.log_odds(slots[stream.id]))
            labels.append(accept_labels(stream, votes=False).y)
    z, y, owner = np.concatenate(log_odds), np.concatenate(labels), np.repeat(names, [len(part) for part in labels])
    known = ~np.isnan(y)
    ranked = Ranked(z[known], scipy.special.expit(z[known]), y[known], owner[known])
    return float(measures(ranked, names)(np.ones(len(names)))[MEASURES.index("auroc_within")])


def _fit(train: Sequence[Stream], slots: States, reading: StatesConfig) -> Linear:
    """The regression on the slots of some streams."""
    labels = fitting.joined([accept_labels(stream, votes=True) for stream in train])
    known = ~np.isnan(labels.y)
    x = np.concatenate([slots[stream.id] for stream in train])
    owner = np.repeat([stream.id for stream in train], [len(slots[stream.id]) for stream in train])
    return fit_states(x[known], labels.y[known], labels.weight[known], owner[known], reading)


_LEAST = 1e-9
"""Probabilities nearer to 0 or 1 than this count as this."""


@dataclasses.dataclass(frozen=True)
class Stack:
    """A fitted stack of one signal."""

    student: Platt  # map of the student's own log-odds
    joint: Platt  # map of the mean of both

    @classmethod
    def fit(cls, floor: Float[np.ndarray, " n"], student: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Stack:
        """Fits both maps on log-odds of calibration rows and their labels."""
        weight = np.ones_like(y)
        own = fit_platt_with_ridge(student, y, weight)
        return cls(own, fit_platt_with_ridge((floor + own.of_log_odds(student)) / 2, y, weight))

    def __call__(self, floor: Float[np.ndarray, " n"], student: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The probabilities of rows, from log-odds."""
        return scipy.special.expit(self.joint.of_log_odds((floor + self.student.of_log_odds(student)) / 2))


def stack(floor: Scores, student: Scores) -> tuple[Scores, dict[Signal, Stack]]:
    """Stacks the student's table on the floor's, of the same calibration and test rows in any order.

    The result is the floor's table with the probabilities of the stack, and the stack of each signal. ValueError if the
    tables have different rows.
    """
    columns, student = floor.columns(), _in_order_of(student, floor)
    calibration = np.asarray(floor.split) == CALIBRATION
    stacks: dict[Signal, Stack] = {}
    for signal in SIGNALS:
        name, y = f"p_{signal}_fast", columns[f"y_{signal}"]
        z, own = (log_odds(np.asarray(table.columns()[name], float), _LEAST) for table in (floor, student))
        rows = calibration & ~np.isnan(y)
        if signal == "need":  # A step's need stands in the row of each of its offers and counts once.
            rows &= floor.candidate == 0
        stacks[signal] = Stack.fit(z[rows], own[rows], y[rows])
        columns[name] = stacks[signal](z, own)
    return Scores.from_columns(columns), stacks


def _in_order_of(scores: Scores, other: Scores) -> Scores:
    """The rows of one table in the order of the other's."""
    place = {key: number for number, key in enumerate(_keys(scores))}
    wanted = _keys(other)
    if place.keys() != set(wanted):
        different = len(place.keys() ^ set(wanted))
        raise ValueError(f"scores: found {different} rows in only one of two tables, expected the same rows in both")
    return scores.take(np.array([place[key] for key in wanted]))


def _keys(scores: Scores) -> list[tuple[str, str, int, int]]:
    assert scores.split is not None, "a stack needs calibration rows"
    columns = (scores.stream, scores.split, scores.step, scores.candidate)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def define_flags() -> None:
    """Defines the command-line flags."""
    config_flags.DEFINE_config_file(
        "student", "configs/smollm2_proactivebench.py", "Config of the pretrained student's run."
    )
    flags.DEFINE_string("weights", "", "Weights to start from; empty uses the config's.")
    flags.DEFINE_string("source", "", "Folder with ProactiveBench's repository; empty uses the config's.")
    flags.DEFINE_string("workdir", None, "Folder for the runs and the results.")
    flags.DEFINE_integer("steps", 100, "Number of training steps per fold.", lower_bound=1)
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Trains in every fold, and compares."""
    options = flags.FLAGS
    workdir = epath.Path(options.workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    config = with_sources(from_config_dict(RunConfig, options.student), options.source, options.weights)
    training = dataclasses.replace(config.training, steps=options.steps, checkpoint_every=min(options.steps, SAVED))
    return study(dataclasses.replace(config, training=training), workdir, resamples=options.resamples)
