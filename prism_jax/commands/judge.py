"""Judges streams: `python -m prism_jax judge --config=configs/judges_paper.py --streams=IN --votes=VOTES --out=OUT`.

Every judge of the config says of each proposal, and of silence, whether the user would accept it now. VOTES holds each
verdict with its provenance, OUT the streams with the majority's labels (docs/judges.md). Started again, it asks
only what was not answered. With --human, --against or --baseline it also prints how far judges, panels and people
agree.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags
from ml_collections import config_flags

from prism_jax.judges.agreements import HUMAN_CONFIG, compare_judges
from prism_jax.judges.ballots import Ballots, human_ballots
from prism_jax.judges.judging import JudgesConfig, judge_streams
from prism_jax.judges.labelling import gather, judge_ballots, label_streams
from prism_jax.judges.panels import majority
from prism_jax.judges.prompts import OURS
from prism_jax.judges.robustness import compare_systems, correct
from prism_jax.judges.votes import prompts_in, read_votes
from prism_jax.report.judges import agreement_tables, corrected_table, robustness_table
from prism_jax.report.table import Table, print_all
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.files import check_outputs
from prism_jax.streams import Stream
from prism_jax.streams.jsonl import read_streams, write_streams

HUMAN_PANEL = "human"


def judge(config: JudgesConfig, options: Mapping[str, Any]) -> None:
    """Asks the judges, writes verdicts and labelled streams, and prints tables.

    `options` has the values of the flags of `prism_jax judge`. Raises ValueError, OSError or RuntimeError in one line,
    for files, endpoints or budgets that cannot be used.
    """
    inputs = {name: options[name] for name in ("streams", "human", "baseline")}
    check_outputs({name: options[name] for name in ("votes", "out")}, inputs)
    for path in options["against"]:
        check_outputs({"out": options["out"]}, {"against": path})
    streams = read_streams(options["streams"])
    baseline = read_streams(options["baseline"]) if options["baseline"] else []
    human = human_ballots(read_streams(options["human"])) if options["human"] else None
    if human is not None and not human.items:
        raise ValueError(f"{options['human']}: found streams without votes, expected votes of people")
    everything, prompt = [*streams, *baseline], config.prompt_name()
    if options["ask"]:
        outcome = judge_streams(everything, config, options["votes"], dry_run=options["dry_run"])
        print("\n".join(outcome.tally.lines()))
        if prompt != OURS:
            print(f"prompt: {prompt}; it shows all events, so most_events does not apply")
        if outcome.unasked:
            print(f"offers without a text, which this prompt has no question about: {outcome.unasked:,}")
        if options["dry_run"]:
            return
        print(f"{outcome.verdicts - outcome.missing} verdicts and {outcome.missing} missing: {options['votes']}")
    files = {config.name: _ballots(options["votes"], list(config.endpoints), everything, config.most_events, prompt)}
    if prompt not in files[config.name]:
        raise ValueError(
            f"{options['votes']}: found verdicts on the prompt {', '.join(files[config.name])}, expected some on the "
            f"config's: {prompt}"
        )
    for path in options["against"]:
        judges = list(dict.fromkeys(vote.judge for vote in read_votes(path)))
        files[_new_name(path, files)] = _ballots(path, judges, everything, config.most_events, prompt)
    if options["out"]:
        _label(streams, config, prompt, options)
    tables = _tables(streams, baseline, files, human, config, options)
    if tables:
        print_all(tables)


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


def _new_name(path: str, names: Collection[str]) -> str:
    """The file's name without its ending, or the whole path where that is taken."""
    name = pathlib.PurePath(path).stem
    return path if name in names or name == HUMAN_PANEL else name


def _label(streams: Sequence[Stream], config: JudgesConfig, prompt: str, options: Mapping[str, Any]) -> None:
    verdicts = gather(read_votes(options["votes"]), list(config.endpoints), prompt)
    labelled = list(label_streams(streams, verdicts, config.most_events, config.panel, prompt))
    write_streams(options["out"], labelled)
    steps = [step for stream in labelled for step in stream.steps]
    needs = [step.y_need for step in steps]
    offers = [candidate.y_accept for step in steps for candidate in step.candidates]
    for what, labels in (("need", needs), ("acceptance", offers)):
        known_labels = [label for label in labels if label is not None]
        mean = f", {100 * np.mean(known_labels):.1f} % positive" if known_labels else ""
        print(f"{what}: {len(known_labels)} labels{mean}, {len(labels) - len(known_labels)} unknown")
    print(f"labelled: {options['out']}")


def _tables(
    streams: Sequence[Stream],
    baseline: Sequence[Stream],
    files: Mapping[str, Mapping[str, Ballots]],
    human: Ballots | None,
    config: JudgesConfig,
    options: Mapping[str, Any],
) -> list[Table]:
    """Agreement, and where the streams hold what a system did, its scores corrected and beside the baseline's.

    Systems are scored under the first prompt of each file.
    """
    settings = {"resamples": options["resamples"]}
    tables = list(agreement_tables(compare_judges(_panels(files), human, config=config.panel, **settings)))
    judged = {name: majority(next(iter(ballots.values())), config.panel) for name, ballots in files.items()}
    names = [pathlib.PurePath(path).stem for path in (options["baseline"] or "", options["streams"])]
    if human is not None and _is_system(streams):
        costs = {"c_fa": options["c_fa"], "c_fn": options["c_fn"]}
        rows = correct(streams, judged, majority(human, HUMAN_CONFIG), **costs, **settings)
        tables += [corrected_table(rows, names[1])] if rows else []
    if baseline:
        if human is not None:
            judged[HUMAN_PANEL] = majority(human, HUMAN_CONFIG)
        tables.append(robustness_table(compare_systems(baseline, streams, judged, **settings), *names))
    return tables


def _is_system(streams: Sequence[Stream]) -> bool:
    """Whether streams say what a system did: at every step at most one offer was made, and at some step one was."""
    made = [sum(bool(offer.logged) for offer in step.candidates) for stream in streams for step in stream.steps]
    return max(made, default=0) == 1


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    flags.DEFINE_string("streams", None, "Streams to judge, as JSON lines.")
    flags.DEFINE_string("votes", None, "File of verdicts to write; with --noask, to read.")
    flags.DEFINE_string("out", None, "File to write the labelled streams to.")
    flags.DEFINE_bool("ask", True, "Ask the judges; --noask only uses the verdicts that VOTES holds.")
    flags.DEFINE_integer(
        "workers", None, "Most requests under way at once at each judge, instead of the config's numbers.", 1
    )
    flags.DEFINE_bool("dry_run", False, "Estimate requests, tokens and cost; send and write nothing.")
    flags.DEFINE_string("human", None, "Streams with people's votes, to compare the judges with.")
    flags.DEFINE_multi_string("against", [], "Verdicts of another panel, to compare with; may be repeated.")
    flags.DEFINE_string("baseline", None, "Streams of another system on the same steps, to compare --streams with.")
    flags.DEFINE_float("c_fa", 1.0, "Cost of a rejected proposal, in the table of corrected numbers.")
    flags.DEFINE_float("c_fn", 2.0, "Cost of a rejected silence, in the table of corrected numbers.")
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of streams.", lower_bound=1)
    refuse_empty("streams", "votes", "out", "human", "baseline")
    flags.mark_flags_as_required(["config", "streams", "votes"])


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    config = from_config_dict(JudgesConfig, options.config)
    if options.workers is not None:
        if not options.ask:
            raise ValueError("--workers: found it with --noask, expected it where judges are asked")
        judges = config.endpoints.items()
        endpoints = {name: dataclasses.replace(endpoint, concurrency=options.workers) for name, endpoint in judges}
        config = dataclasses.replace(config, endpoints=endpoints)
    judge(config, options.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
