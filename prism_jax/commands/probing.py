"""Trains a probe and evaluates it, in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etils import epath

from prism_jax.probe.fitting import Probe, StreamInputs, fit_probe, score
from prism_jax.probe.kept_states import describe_states, states_of
from prism_jax.probe.probe_config import ProbeConfig
from prism_jax.probe.saved import SavedProbe, load_probe, save_probe
from prism_jax.probe.words import describe_all
from prism_jax.report.outputs import evaluate_into
from prism_jax.report.tables import SHOWN_ONLY
from prism_jax.runs.scores_files import check_shown, shown_offers
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict, to_dict
from prism_jax.runtime.digests import check_export
from prism_jax.runtime.files import read_object, write_json
from prism_jax.runtime.provenance import as_facts, provenance
from prism_jax.scores import Scores
from prism_jax.streams import Stream
from prism_jax.streams.sources import load_splits
from prism_jax.streams.splits import Splits
from prism_jax.streams.stream_columns import offer_columns
from prism_jax.streams.summary import summarise
from prism_jax.training import fingerprints
from prism_jax.training.workdir import Workdir

SPLITS = ("train", "calibration", "test")


def train_and_evaluate_probe(
    config: ProbeConfig,
    workdir: epath.PathLike,
    *,
    texts: bool = True,
    shown_only: bool = False,
    expect_digest: str | None = None,
) -> None:
    """Trains a probe into `workdir`/probe unless it is there, and evaluates it.

    The workdir gets config.json, run.json, probe/, states/ (with a language model), and what an evaluation writes:
    scores.parquet, calibration.json, evaluation.json and report.html. It may hold an earlier run of the same config.

    With `texts` the report may show the texts of events. `shown_only` evaluates without the offers that were not made;
    every title then says so. `expect_digest` is the SHA-256 of the `digests.json` of the export that `states.weights`
    names; None believes the list.

    Raises:
      ValueError, OSError, RuntimeError: in one line; nothing is written if the config, the data source or the weights
        cannot be used, or if the folder holds a run of another config.
    """
    workdir = epath.Path(workdir)
    if config.states.weights or expect_digest is not None:
        check_export(config.states.weights, expect_digest)
    splits = load_splits(config.data, config.simulator)
    streams = {name: fingerprints.of_streams(getattr(splits, name)) for name in SPLITS}
    states = describe_states(config.states) if config.states.weights else None
    if not shown_only:
        check_shown("data", _labels_table(splits, config.data.fold))
    _claim(Workdir(workdir), config, streams)
    data = {name: _words_and_states(getattr(splits, name), config, workdir) for name in SPLITS}
    probe = _fitted(data["train"], config, workdir / "probe", states)
    rows = [
        row for name in ("calibration", "test") for row in score(probe, data[name], split=name, fold=config.data.fold)
    ]
    origin = as_facts(provenance())
    scores = Scores.from_rows(rows)
    evaluate_into(
        workdir,
        shown_offers("data", scores) if shown_only else scores,
        config.decision,
        facts={"command": origin.pop("command"), **_facts(config, splits), **origin},
        keep_scores=True,
        streams=splits.test if texts else (),
        calibrator=config.calibration,
        population=SHOWN_ONLY if shown_only else "",
        kept=scores,
    )


def _labels_table(splits: Splits, fold: int) -> Scores:
    """What the streams to evaluate say, as the table that the probe will fill: nothing is trained to be refused."""
    rows = [
        offer_columns(stream, step, offer, split=name, fold=fold)
        | {"step": place, "candidate": number, "p_need_fast": 0.5, "p_accept_fast": 0.5}
        for name in ("calibration", "test")
        for stream in getattr(splits, name)
        for place, step in enumerate(stream.steps)
        for number, offer in enumerate(step.candidates)
    ]
    return Scores.from_rows(rows)


def _fitted(
    streams: Sequence[StreamInputs], config: ProbeConfig, folder: epath.Path, states: dict[str, Any] | None
) -> Probe:
    """The probe of an earlier call in this folder, or a new one, which is saved there."""
    if folder.exists():
        saved = load_probe(folder)
        if saved.states != states:
            raise ConfigError(
                f"{folder}: states: found a probe on other weights or blocks, expected those of the config; choose "
                "another --workdir"
            )
        return saved.probe
    probe = fit_probe(streams, config.fit, config.states)
    save_probe(folder, SavedProbe(probe, states))
    return probe


def _words_and_states(streams: Sequence[Stream], config: ProbeConfig, workdir: epath.Path) -> list[StreamInputs]:
    """The words of streams, and their states where the config names a language model."""
    words = describe_all(streams)
    if not config.states.weights:
        return [StreamInputs(text) for text in words]
    return [
        StreamInputs(*both) for both in zip(words, states_of(streams, config.states, workdir / "states"), strict=True)
    ]


def _claim(workdir: Workdir, config: ProbeConfig, streams: dict[str, str]) -> None:
    """Writes the files that make a folder the run's; in one of an earlier run, config and streams must be the same."""
    path = workdir.config
    if path.exists():
        earlier = from_config_dict(ProbeConfig, read_object(path, "prism_jax.probe", ConfigError), f"{path}: config")
        if earlier != config:
            raise ConfigError(f"{path}: found a run of another config, expected this one; choose another --workdir")
        return fingerprints.check(workdir, streams)
    workdir.path.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(config))
    write_json(workdir.fingerprints, streams)
    write_json(workdir.provenance, provenance())


def _facts(config: ProbeConfig, splits: Splits) -> dict[str, str]:
    """Describes probe and data, for the terminal and the report."""
    return {
        "probe": f"words and states of {config.states.weights}" if config.states.weights else "words",
        "data": str(config.data),
        **{name: str(summarise(getattr(splits, name))["all"]) for name in SPLITS},
    }
