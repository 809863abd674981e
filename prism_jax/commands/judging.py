"""What a panel of judges is asked about streams, and the tables, labels and the page for people that come of it."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prism_jax.labelling.judges.agreements import HUMAN_CONFIG, compare_judges
from prism_jax.labelling.judges.ballots import Ballots, majority
from prism_jax.labelling.judges.judging import JudgesConfig, judge_streams
from prism_jax.labelling.judges.labelling import (
    gather,
    human_of,
    judge_ballots,
    label_streams,
)
from prism_jax.labelling.judges.prompts import OURS
from prism_jax.labelling.judges.robustness import correct
from prism_jax.labelling.judges.sampling import AskedEvent, common_events, draw_events, page_data
from prism_jax.labelling.judges.votes import prompts_in, read_votes
from prism_jax.report.controls import as_script_text
from prism_jax.report.judges import agreement_tables, corrected_table
from prism_jax.report.table import Table, print_all
from prism_jax.report.templates import load_template
from prism_jax.runtime.command import check_together
from prism_jax.runtime.files import check_folder_of, check_outputs, write_text
from prism_jax.scores import Scores, write_scores
from prism_jax.scores.files import check_suffix
from prism_jax.scores.joining import find_files as find_scores
from prism_jax.scores.joining import read_all
from prism_jax.scores.units import folds_of
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.shards import find_files, read_files
from prism_jax.streams.stream_columns import offer_columns

HUMAN_PANEL = "human"
LABELS = ("y_need", "y_accept", "votes", "logged", "propensity")
"""The columns that verdicts decide."""
_FOLDS = 5


def judge(config: JudgesConfig, options: Mapping[str, Any]) -> None:
    """Asks the judges, writes verdicts and labelled streams, and prints tables.

    `options` has the values of the flags of `judge`. Raises ValueError, OSError or RuntimeError in one line,
    for files, endpoints or budgets that cannot be used.
    """
    streams, *others = _systems(options).values()
    _check_files(options, config.remote.cache)
    scores = read_all(options["scores"]) if options["scores"] else None
    if options["scores_out"]:
        _judged(streams, scores)  # what does not fit is an error before judges are asked
    prompt = config.prompt_name()
    judged = [*streams, *itertools.chain(*others)]
    human = human_of(options["human"], judged, config.most_events) if options["human"] else None
    if options["ask"]:
        outcome = judge_streams(judged, config, options["votes"], dry_run=options["dry_run"])
        print("\n".join(outcome.tally.lines()))
        if prompt != OURS:
            print(f"prompt: {prompt}; it shows all events, so most_events does not apply")
        if outcome.unasked:
            print(f"offers without a text, which this prompt has no question about: {outcome.unasked:,}")
        if options["dry_run"]:
            return
        print(f"{outcome.verdicts - outcome.missing} verdicts and {outcome.missing} missing: {options['votes']}")
    files = {config.name: _ballots(options["votes"], list(config.endpoints), judged, config.most_events, prompt)}
    if prompt not in files[config.name]:
        raise ValueError(
            f"{options['votes']}: found verdicts on the prompt {', '.join(files[config.name])}, expected some on the "
            f"config's: {prompt}"
        )
    for path in options["against"]:
        judges = list(dict.fromkeys(vote.judge for vote in read_votes(path)))
        stem = pathlib.PurePath(path).stem
        name = path if stem in files or stem == HUMAN_PANEL else stem
        files[name] = _ballots(path, judges, judged, config.most_events, prompt)
    every = [ballots for of_file in files.values() for ballots in of_file.values()]
    names = {*files, *(name for ballots in every for name in ballots.judges)}
    if human is not None and (same := names.intersection(human.judges)):
        raise ValueError(f"--human: found people named {', '.join(sorted(same))}, as judges are, expected other names")
    if options["out"] or options["scores_out"]:
        _label(streams, scores, config, prompt, options)
    tables = _tables(streams, files, human, config, options)
    if tables:
        print_all(tables)


def _check_files(options: Mapping[str, Any], answers: str) -> None:
    """An error, before anybody is asked, for a file that is written and read or cannot be written, or flags of scores.

    `answers` is the file of the judges' answers.
    """
    outputs = {name: options[name] for name in ("votes", "out", "scores_out")}
    inputs = {
        "config.remote.cache": answers,
        "human": options["human"],
        "streams": find_files(options["streams"]),
        "system": [path for system in options["system"] for path in find_files(system.partition("=")[2])],
        "scores": find_scores(options["scores"]) if options["scores"] else None,
    }
    check_outputs(outputs, inputs)
    check_outputs({name: options[name] for name in ("out", "scores_out")}, {"against": options["against"]})
    for path in filter(None, outputs.values()):
        check_folder_of(path)
    if options["scores_out"] is not None:
        check_suffix(options["scores_out"])
    check_together("scores without scores_out: both: the table to write", options=options)


def _ballots(
    votes: str, judges: Sequence[str], streams: Sequence[Stream], most_events: int, prompt: str
) -> dict[str, Ballots]:
    """The ballots of a file of verdicts by prompt, the stated one first; an error where none is about these streams."""
    prompts = sorted(prompts_in(votes, judges), key=lambda name: name != prompt)
    ballots = {
        name: judge_ballots(streams, gather(read_votes(votes), judges, name), judges, most_events, name)
        for name in prompts
    }
    ballots = {name: found for name, found in ballots.items() if found.items}
    if not ballots:
        raise ValueError(
            f"{votes}: found no verdict of {', '.join(judges)} on these streams, expected the verdicts on their "
            f"questions with most_events = {most_events}"
        )
    return ballots


def _panels(files: Mapping[str, Mapping[str, Ballots]]) -> dict[str, Ballots]:
    """The ballots of all files by the panel's name, with the prompt's where one file has several."""
    panels = {}
    for name, ballots in files.items():
        kinds = [prompt.partition(" ")[0] for prompt in ballots]  # without the digest, where that tells them apart
        for prompt, kind in zip(ballots, kinds, strict=True):
            words = kind if kinds.count(kind) == 1 else prompt
            panels[name if len(kinds) == 1 else f"{name}, {words}"] = ballots[prompt]
    return panels


def _judged(labelled: Sequence[Stream], scores: Scores | None) -> tuple[Scores, int]:
    """The scores table with the streams' labels, and the number of steps that are left out of it."""
    return teacher_scores(labelled) if scores is None else (judged_scores(labelled, scores), 0)


def _label(
    streams: Sequence[Stream], scores: Scores | None, config: JudgesConfig, prompt: str, options: Mapping[str, Any]
) -> None:
    verdicts = gather(read_votes(options["votes"]), list(config.endpoints), prompt)
    labelled = list(label_streams(streams, verdicts, config.most_events, config.panel, prompt))
    if options["out"]:
        write_streams(options["out"], labelled)
    if options["scores_out"]:
        table, left_out = _judged(labelled, scores)
        write_scores(options["scores_out"], table)
        without = f"; {left_out} steps without a teacher's probabilities are left out" if left_out else ""
        print(f"scores: {len(table)} rows, {options['scores_out']}{without}")
    steps = [step for stream in labelled for step in stream.steps]
    needs = [step.y_need for step in steps]
    offers = [candidate.y_accept for step in steps for candidate in step.candidates]
    for what, labels in (("need", needs), ("acceptance", offers)):
        known_labels = [label for label in labels if label is not None]
        mean = f", {100 * np.mean(known_labels):.1f} % positive" if known_labels else ""
        print(f"{what}: {len(known_labels)} labels{mean}, {len(labels) - len(known_labels)} unknown")
    if options["out"]:
        print(f"labelled: {options['out']}")


def _tables(
    streams: Sequence[Stream],
    files: Mapping[str, Mapping[str, Ballots]],
    human: Ballots | None,
    config: JudgesConfig,
    options: Mapping[str, Any],
) -> list[Table]:
    """Agreement, and where the streams hold what a system did, its scores corrected, under each file's first prompt."""
    settings = {"resamples": options["resamples"]}
    tables = list(agreement_tables(compare_judges(_panels(files), human, config=config.panel, **settings)))
    judged = {name: majority(next(iter(ballots.values())), config.panel) for name, ballots in files.items()}
    if human is not None and _is_system(streams):
        costs = {"c_fa": options["c_fa"], "c_fn": options["c_fn"]}
        rows = correct(streams, judged, majority(human, HUMAN_CONFIG), **costs, **settings)
        tables += [corrected_table(rows, pathlib.PurePath(options["streams"]).stem)] if rows else []
    return tables


def _is_system(streams: Sequence[Stream]) -> bool:
    """Whether streams say what a system did: at every step at most one offer was made, and at some step one was."""
    made = [sum(bool(offer.logged) for offer in step.candidates) for stream in streams for step in stream.steps]
    return max(made, default=0) == 1


def write_page(options: Mapping[str, Any], most_events: int) -> None:
    """Writes the page on which people judge a sample of the events that all systems have."""
    paths = [options["streams"], *(system.partition("=")[2] for system in options["system"])]
    read = [file for path in paths if path for file in find_files(path)]
    check_outputs({"page_out": options["page_out"]}, {"streams or --system": read})
    events = common_events(_systems(options), most_events)
    drawn = draw_events(events, options["sample"] or len(events), options["seed"])
    write_text(options["page_out"], voting_page(drawn, most_events))
    domains = sorted(Counter(event.stream.domain for event in drawn).items())
    counts = ", ".join(f"{name}: {count}" for name, count in domains)
    texts = sum(len(event.proposals) for event in drawn)
    what = f"{len(drawn)} of the {len(events)} events that all systems have ({counts}), {texts} texts"
    print(f"{what}: {options['page_out']}")


def voting_page(events: Sequence[AskedEvent], most_events: int) -> str:
    """The page's HTML, in which texts stand as data, so that none of them is ever read as markup."""
    data = as_script_text(page_data(events, most_events))
    return load_template("voting.html.jinja").render(data=data, events=len(events))


def _systems(options: Mapping[str, Any]) -> dict[str, list[Stream]]:
    """The streams of --streams and of each --system, by name."""
    path = options["streams"]
    systems = {} if path is None else {pathlib.PurePath(path).stem: read_files(path)}
    for system in options["system"]:
        name, _, path = system.partition("=")
        if not name or not path or name in systems:
            raise ValueError(f"--system: found {system!r}, expected NAME=PATH with a new name")
        systems[name] = read_files(path)
    if not systems:
        raise ValueError("--streams, --system: found neither, expected the streams of a system")
    return systems


def show_people(options: Mapping[str, Any], most_events: int) -> None:
    """Prints how far people agree who voted on systems' streams."""
    human = human_of(options["human"], [*itertools.chain(*_systems(options).values())], most_events)
    print_all(agreement_tables(compare_judges({}, human, resamples=options["resamples"])))


def judged_scores(labelled: Sequence[Stream], scores: Scores) -> Scores:
    """The table with the labels of streams of `label_streams` in place of its own; null where there is no verdict.

    A table without need gets labels of acceptance alone.

    Raises:
      ValueError: naming stream, step and candidate, for a row that is no candidate of the streams, or the reverse; or
        naming a stream whose rows are curated.
    """
    _check_whole(labelled)
    offers = {
        (stream.id, number, index): offer_columns(stream, step, offer, split="", fold=0)
        for stream in labelled
        for number, step in enumerate(stream.steps)
        for index, offer in enumerate(step.candidates)
    }
    places = [*zip(scores.stream.tolist(), scores.step.tolist(), scores.candidate.tolist(), strict=True)]
    for stream, step, candidate in sorted(offers.keys() ^ set(places)):
        what = "a candidate without scores" if (stream, step, candidate) in offers else "scores of no such candidate"
        raise ValueError(
            f"--scores: stream {stream!r}, step {step}, candidate {candidate}: found {what}, expected the scores of "
            "exactly these --streams"
        )
    names = LABELS if scores.has_need else LABELS[1:]
    labels = {name: [offers[place][name] for place in places] for name in names}
    return Scores.from_columns({**scores.columns(), **scores.extra, **labels})


def teacher_scores(labelled: Sequence[Stream]) -> tuple[Scores, int]:
    """The teacher's probabilities with the labels of streams of `label_streams`, in folds of whole streams.

    Steps of which the teacher gave no probabilities are left out, and counted.

    Raises:
      ValueError: if no step has any, or naming a stream whose rows are curated.
    """
    _check_whole(labelled)
    rows: list[dict[str, Any]] = []
    left_out = 0
    for stream in labelled:
        for number, step in enumerate(stream.steps):
            known = step.teacher_need is not None and all(offer.teacher_accept is not None for offer in step.candidates)
            left_out += not known
            for index, offer in enumerate(step.candidates if known else ()):
                columns = offer_columns(stream, step, offer, split="all", fold=0)
                signals = {"p_need_fast": step.teacher_need, "p_accept_fast": offer.teacher_accept}
                rows.append(columns | {"step": number, "candidate": index} | signals)
    if not rows:
        raise ValueError(
            "--scores_out: found no probabilities of a teacher in --streams, expected some, or a system's --scores"
        )
    scores = Scores.from_rows(rows)
    return dataclasses.replace(scores, split=None, fold=folds_of(scores.stream, None, _FOLDS)), left_out


def _check_whole(streams: Sequence[Stream]) -> None:
    for stream in streams:
        if stream.curated:
            raise ValueError(
                f"--scores_out: stream {stream.id!r}: found curated rows ({stream.curated}), expected whole streams: "
                "labels that were selected would bias the calibration and the results"
            )
