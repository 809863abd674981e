"""Training without a domain and deciding in it, before and after temperatures, beside the domains that were seen."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from etils import epath

from prism_jax.decision.calibration import expected_calibration_error
from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.fits import Calibration
from prism_jax.evaluation.policy_rows import EvaluationData
from prism_jax.evaluation.rows import Form
from prism_jax.experiments.paper import cells, references
from prism_jax.experiments.paper.drawing import bars
from prism_jax.experiments.paper.pathways import numbers
from prism_jax.experiments.paper.sheet import Line, Measure, Number, Sheet
from prism_jax.experiments.paper.study import ExperimentResult, IntervalSettings, SkippedError, Study, Subject
from prism_jax.runs.store import of_seed
from prism_jax.scores import Scores
from prism_jax.scores.labels import Signal, read
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import simulate
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.simulator_text import PHRASES
from prism_jax.streams.sources import simulated_index
from prism_jax.training.pathway_config import Method
from prism_jax.training.run_config import RunConfig
from prism_jax.training.students import sources
from prism_jax.training.workdir import Workdir

HELD_OUT = "writing"
"""The domain that the paper holds out too."""
SEEN = tuple(domain for domain in PHRASES if domain != HELD_OUT)
MEASURES = {
    **cells.RATES,
    **cells.AREA,
    **cells.COST,
    "ece_need": Measure(
        "ECE need", "Expected calibration error of p_need, 15 bins of equal width.", "%", 2, optional=True
    ),
    "ece_accept": Measure("ECE accept", "The same of p_accept.", "%", 2),
}
KINDS: tuple[Signal, ...] = ("need", "accept")
WITHOUT, WITH = f"trained without {HELD_OUT}", "trained on every domain"


def make(subject: Subject) -> ExperimentResult:
    """Compares a student that never saw the domain with itself elsewhere, and with one that saw it."""
    without, everywhere = (_scores(subject, domains) for domains in (SEEN, tuple(PHRASES)))
    seen = protocol.calibrate(only(without, SEEN))
    own = protocol.calibrate(only(without, (HELD_OUT,)))
    every = protocol.calibrate(everywhere)
    in_domain, out = f"{WITHOUT}, tested on {' and '.join(SEEN)}", f"{WITHOUT}, tested on {HELD_OUT}"
    rows = (
        _Row("raw", in_domain, without, SEEN, seen, "raw", "in domain, raw"),
        _Row("calibrated", in_domain, without, SEEN, seen, "calibrated", "in domain, calibrated"),
        _Row("raw", out, without, (HELD_OUT,), seen, "raw", "out of domain, raw"),
        _Row("calibrated elsewhere", out, without, (HELD_OUT,), seen, "calibrated", "out of domain, calibrated"),
        _Row(f"calibrated on {HELD_OUT}", out, without, (HELD_OUT,), own, "calibrated"),
        _Row("raw", f"{WITH}, tested on {HELD_OUT}", everywhere, (HELD_OUT,), every, "raw"),
        _Row("calibrated", f"{WITH}, tested on {HELD_OUT}", everywhere, (HELD_OUT,), every, "calibrated"),
    )
    words = (
        f"C_FA = {subject.point.c_fa:g}, C_FN = {subject.point.c_fn:g}; the gate on the fast pass.",
        "Both students take the same number of streams and steps.",
    )
    return _result(rows, subject, lambda tested: subject.note(*words, data=tested))


def _result(
    rows: Sequence[_Row], of: Study | Subject, note_of: Callable[[Sequence[EvaluationData]], str]
) -> ExperimentResult:
    tested = [protocol.prepare(only(row.scores, row.domains), row.fits, of.point)[0] for row in rows]
    lines = tuple(_line(row, data, of.settings, of.method) for row, data in zip(rows, tested, strict=True))
    note = note_of(tested)
    words = "The paper trains mostly on coding, and prints equal rows before and after temperatures in domain."
    sheet = Sheet("domain_transfer", "Domain transfer", "signals", MEASURES, lines, note, of_paper=words)
    shown = {key: MEASURES[key] for key in ("f1", "audbc", "cost")}
    return ExperimentResult((sheet,), lambda figure: bars(figure, lines, shown))


def of_scores(study: Study, held_out: str, path: str) -> ExperimentResult:
    """Compares the held-out domain with the others, on the scores of one student that was trained without it.

    Raises:
      SkippedError: for scores without domains.
      ValueError: if the domain is not in the scores, or the config of the run that they lie in trained on it.
    """
    scores, workdir = study.scores, Workdir(epath.Path(path).parent)
    if scores.domain is None:
        raise SkippedError("domain: there is no such column")
    if workdir.config.exists() and (left_out := workdir.load_config().data.without_domain) != held_out:
        raise ValueError(f"{workdir.config}: data.without_domain: found {left_out!r}, expected --held_out={held_out}")
    domains = sorted(set(scores.domain.astype(str)))
    seen = tuple(domain for domain in domains if domain != held_out)
    if held_out not in domains or not seen:
        raise ValueError(f"--held_out: found {held_out!r}, expected one of several domains: {', '.join(domains)}")
    fits = protocol.calibrate(only(scores, seen))
    rows = (
        _Row("raw", "other domains", scores, seen, fits, "raw", "in domain, raw"),
        _Row("calibrated", "other domains", scores, seen, fits, "calibrated", "in domain, calibrated"),
        _Row("raw", held_out, scores, (held_out,), fits, "raw", "out of domain, raw"),
        _Row("calibrated elsewhere", held_out, scores, (held_out,), fits, "calibrated", "out of domain, calibrated"),
    )
    words = (
        f"C_FA = {study.point.c_fa:g}, C_FN = {study.point.c_fn:g}; the gate on the fast pass.",
        f"Trained without {held_out}, which scores alone cannot show. Temperatures are fitted on {', '.join(seen)}.",
    )
    return _result(rows, study, lambda tested: study.note(*words, of=tested))


@dataclasses.dataclass(frozen=True)
class _Row:
    """One row: the student's scores, the domains to test on, and the calibration; the name of the paper's row."""

    name: str
    section: str
    scores: Scores
    domains: Sequence[str]
    fits: Calibration
    form: Form
    paper: str = ""


def _line(row: _Row, data: EvaluationData, settings: IntervalSettings, method: Method) -> Line:
    tested = only(row.scores, row.domains)
    values = numbers(data, row.form, settings, method)
    for signal in KINDS if tested.has_need else KINDS[1:]:
        raw = read(splits.evaluated_rows(tested), signal, "fast")
        p = raw.p if row.form == "raw" else row.fits.calibrated(signal, "fast", raw.rows)
        values[f"ece_{signal}"] = Number(float(expected_calibration_error(*raw._replace(p=p).labelled())))
    return Line(row.name, cells.beside(values, references.DOMAINS.get(row.paper)), row.section)


def only(scores: Scores, domains: Sequence[str]) -> Scores:
    """The rows of some domains."""
    assert scores.domain is not None, "every simulated stream has a domain, and `of_scores` looked at it"
    return scores.take(np.isin(scores.domain.astype(str), list(domains)))


def _scores(subject: Subject, domains: tuple[str, ...]) -> Scores:
    """The scores on every domain of a student that was trained on some of them."""
    trainings = subject.trainings
    config = of_seed(trainings.recipes.transfer, trainings.seed)
    name = "transfer-" + "-".join(domains)
    return trainings.store.scores(name, with_files(config, trainings.store.folder / "streams", domains), "fast")


def with_files(config: RunConfig, folder: epath.Path, domains: tuple[str, ...]) -> RunConfig:
    """The config on files of simulated streams: those of some domains to train on, and of all for the other splits.

    The config's `data` says how many streams each split has, and its `simulator` what they are like. The files are
    written to the folder, unless they are there.
    """
    counts = {"train": config.data.train_streams, "calibration": config.data.calibration_streams}
    paths = []
    for split, count in (counts | {"test": config.data.test_streams}).items():
        drawn = domains if split == "train" else tuple(PHRASES)
        key = json.dumps([dataclasses.asdict(config.simulator), split, count, drawn], sort_keys=True)
        path = folder / f"{split}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsonl"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_streams(path, itertools.islice(_draw(config.simulator, split, drawn), count))
        paths.append(str(path.resolve()))
    return dataclasses.replace(config, data=sources(*paths))


def _draw(config: SimulatorConfig, split: str, domains: Sequence[str]) -> Iterator[Stream]:
    """The streams of some domains among those of a split; on the test split every offer is made."""
    logging: Literal["policy", "always"] = "always" if split == "test" else "policy"
    for number in itertools.count():
        stream = simulate(config, simulated_index(split, number), logging)
        if stream.domain in domains:
            yield stream
