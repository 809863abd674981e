"""The job of `official_scores`: scores traces by one judge, and checks published scores."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from prism_jax.labelling.judges.ballots import Ballots, Item, majority
from prism_jax.labelling.judges.labelling import gather, judge_ballots
from prism_jax.labelling.judges.prompts import OURS
from prism_jax.labelling.judges.votes import prompts_in, read_votes
from prism_jax.proactivebench.official import (
    Judged,
    Verdicts,
    score_traces,
    verdicts_in_files,
    verdicts_of_labels,
)
from prism_jax.proactivebench.published import check_published, read_published
from prism_jax.proactivebench.tables import published_table, score_table, scores_csv
from prism_jax.report.table import Table
from prism_jax.runtime.command import check_together
from prism_jax.runtime.files import write_files
from prism_jax.streams import proactivebench
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.traces import (
    Mode,
    Trace,
    official_predictions,
    read_categories,
    read_traces,
    trace_stream,
)

JUDGES = ("votes", "judged_by", "labels")
"""The flags that name where verdicts come from; a run has at most one of them, so that no table mixes judges."""


def score_official(options: Mapping[str, Any]) -> list[Table]:
    """The tables of `official_tables`; writes its CSV files where a folder is given."""
    tables, contents = official_tables(options)
    if options["workdir"] and contents:
        out = epath.Path(options["workdir"])
        for name in contents:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_files({out / name: content for name, content in contents.items()})
    return tables


def official_tables(options: Mapping[str, Any]) -> tuple[list[Table], dict[str, bytes]]:
    """The tables of published and of own scores, and a CSV per mode and model in the published format.

    `options` has the values of the flags of `official_scores`. Raises ValueError or OSError in one line, for
    files that cannot be used or flags that do not fit.
    """
    _check_flags(options)
    models = _models(options["traces"])
    categories = read_categories(options["splits"]) if options["splits"] else None
    if options["workdir"]:
        _write_streams(models, epath.Path(options["workdir"]) / "streams")
    tables: list[Table] = []
    if options["published"]:
        tables.append(_published(options["published"], models, categories or {}))
    contents: dict[str, bytes] = {}
    prompt = _prompt(options) if options["votes"] else OURS
    judged = _judged(options, models, prompt) if _has_judge(options) else {}
    modes: tuple[Mode, ...] = ("official", "fixed")
    for mode in modes if judged else ():
        scores = {name: score_traces(traces, judged[name], mode, categories) for name, traces in models.items()}
        tables.append(score_table(scores, mode, _judge_name(options, prompt)))
        contents |= {f"{mode}/{name}.csv": scores_csv(scored).encode() for name, scored in scores.items()}
    return tables, contents


def _check_flags(options: Mapping[str, Any]) -> None:
    if sum(bool(options[name]) for name in JUDGES) > 1:
        raise ValueError(f"flags: found several of --{', --'.join(JUDGES)}, expected one: tables never mix judges")
    if bool(options["votes"]) != bool(options["judges"]):
        raise ValueError("flags: found one of --votes and --judges, expected both: the file and whose verdicts count")
    check_together(
        "prompt without votes: the file whose verdicts it chooses from",
        "published without splits: the categories of its rows",
        options=options,
    )
    if not (_has_judge(options) or options["published"] or options["workdir"]):
        names = ", --".join((*JUDGES, "published", "workdir"))
        raise ValueError(f"flags: found nothing to do, expected one of --{names}")


def _has_judge(options: Mapping[str, Any]) -> bool:
    return any(options[name] for name in JUDGES)


def _models(folder: str) -> dict[str, dict[str, Trace]]:
    """The traces of every model: of each subfolder, or of the folder itself if it holds traces."""
    place = epath.Path(folder)
    inside = sorted(place.iterdir()) if place.is_dir() else []
    subfolders = [path for path in inside if path.is_dir() and not path.name.startswith(".")]  # a killed writer's
    if not subfolders:
        return {place.name: read_traces(place)}
    return {path.name: read_traces(path) for path in subfolders}


def _write_streams(models: Mapping[str, Mapping[str, Trace]], folder: epath.Path) -> None:
    """Writes a file of streams per model, for `judge`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, traces in models.items():
        write_streams(folder / f"{name}.jsonl", [trace_stream(stream, trace) for stream, trace in traces.items()])


def _published(
    folder: str, models: Mapping[str, Mapping[str, Trace]], categories: Mapping[str, Sequence[str]]
) -> Table:
    by_model = {}
    for path in sorted(epath.Path(folder).iterdir()):
        if path.suffix == ".csv" and (rows := read_published(path)):
            try:
                by_model[path.stem] = check_published(rows, models.get(path.stem, {}), categories)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
    return published_table(by_model)


def _judge_name(options: Mapping[str, Any], prompt: str) -> str:
    if options["labels"]:
        return f"human votes (need: {options['need']})"
    if options["judged_by"]:
        return options["judged_by"]
    names = options["judges"]
    words = names[0] if len(names) == 1 else f"majority of {', '.join(names)}"
    return words if prompt == OURS else f"{words}; prompt: {prompt}"


def _prompt(options: Mapping[str, Any]) -> str:
    """The only prompt of the judges' verdicts, or the one that --prompt names, with or without its digest."""
    prompts = prompts_in(options["votes"], options["judges"])
    named = [prompt for prompt in prompts if options["prompt"] in (None, prompt, prompt.partition(" ")[0])]
    if prompts and len(named) != 1:
        found = f"{', '.join(prompts)}{' with --prompt=' + options['prompt'] if options['prompt'] else ''}"
        raise ValueError(f"{options['votes']}: found verdicts on {found}, expected --prompt to name one of them")
    return named[0] if named else OURS


def _judged(options: Mapping[str, Any], models: Mapping[str, Mapping[str, Trace]], prompt: str) -> dict[str, Judged]:
    """The verdicts of this run's only judge on each model's traces."""
    if options["labels"]:
        streams = proactivebench.load(options["labels"], options["data_dir"] or None, need=options["need"])
        labelled = {stream.id: stream for stream in streams}
        return {name: verdicts_of_labels(traces, labelled) for name, traces in models.items()}
    if options["judged_by"]:
        return {name: verdicts_in_files(traces) for name, traces in models.items()}
    judges = options["judges"]
    verdicts = gather(read_votes(options["votes"]), judges, prompt)
    judged: dict[str, Judged] = {}
    for name, traces in models.items():
        streams = [trace_stream(stream, trace) for stream, trace in traces.items()]
        ballots = judge_ballots(streams, verdicts, judges, options["most_events"], prompt)
        judged[name] = verdicts_of_ballots(traces, majority(ballots))
    return judged


def verdicts_of_ballots(traces: Mapping[str, Trace], ballots: Ballots) -> dict[tuple[str, int], Verdicts]:
    """A single rater's ballots on `trace_stream` of each trace, as verdicts on its events."""
    labels = dict(zip(ballots.items, ballots.verdicts[:, 0], strict=True))

    def verdict(item: Item) -> bool | None:
        label = labels.get(item, np.nan)
        return None if np.isnan(label) else bool(label)

    verdicts = {}
    for stream, trace in traces.items():
        for number, event in enumerate(trace):
            silence = verdict(Item(stream, number, silence=True))
            occurrences: collections.Counter[str] = collections.Counter()
            answers: list[bool | None] = []
            for prediction in official_predictions(event):
                if isinstance(prediction, str):
                    answers.append(
                        verdict(Item(stream, number, silence=False, text=prediction, place=occurrences[prediction]))
                    )
                    occurrences[prediction] += 1
                else:
                    answers.append(silence if prediction is None else None)
            verdicts[stream, number] = Verdicts(tuple(answers), silence)
    return verdicts
