"""Asks a panel of models what the user would have accepted.

    python -m prism_jax judge --config=configs/judges.py --streams=IN --votes=VOTES --out=OUT
    python -m prism_jax judge --page_out=FILE.html --streams=A.jsonl --system=NAME=B.jsonl --sample=229

Every judge of the config says of each proposal, and of silence, whether the user would accept it now. VOTES holds each
verdict with its provenance, OUT the streams with the majority's labels (docs/judges.md). --scores_out=FILE is a scores
table with these labels, and the signals of --scores=FILES, such as what `score` wrote beside the texts that are judged.
Started again, it asks only what was not answered. With --human or --against it also prints how far judges, panels and
people agree; with --streams and --human alone, how far people do. The second asks nobody, and writes a page on which
people judge what several systems would say.
"""

from __future__ import annotations

import dataclasses

from absl import flags
from ml_collections import config_flags

from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty

OF_JUDGES = "ask c_fa c_fn votes out scores scores_out human against dry_run workers resamples"
"""Flags that --page_out has no use for."""


def define_flags() -> None:
    """Defines the flags."""
    config_flags.DEFINE_config_file("config", None, "A file of configs/; --config.x.y=value overrides a setting.")
    flags.DEFINE_string("streams", None, "Streams to judge, as JSON lines: a file, a folder or a glob.")
    flags.DEFINE_string("votes", None, "File of verdicts to write; with --noask, to read.")
    flags.DEFINE_string("out", None, "File to write the labelled streams to.")
    flags.DEFINE_string("scores_out", None, "Scores table to write with the majority's labels, .parquet or .jsonl.")
    flags.DEFINE_string(
        "scores", None, "With --scores_out: scores of these streams, whose signals it has; by default the teacher's."
    )
    flags.DEFINE_bool("ask", True, "Ask the judges; --noask only uses the verdicts that VOTES holds.")
    flags.DEFINE_integer(
        "workers", None, "Most requests under way at once at each judge, instead of the config's numbers.", 1
    )
    flags.DEFINE_bool("dry_run", False, "Estimate requests, tokens and cost; send and write nothing.")
    flags.DEFINE_list("human", None, "People's votes, as files of votes or streams with votes, to compare judges with.")
    flags.DEFINE_string("page_out", None, "File of HTML to write, on which people judge; nothing else is done.")
    flags.DEFINE_multi_string("system", [], "NAME=PATH: streams of a further system, to be judged as well.")
    flags.DEFINE_integer("sample", None, "Number of events on the page; all by default.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the sample and of the order on the page.", lower_bound=0)
    flags.DEFINE_multi_string("against", [], "Verdicts of another panel, to compare with; may be repeated.")
    flags.DEFINE_float("c_fa", 1.0, "Cost of a rejected proposal, in the table of corrected numbers.")
    flags.DEFINE_float("c_fn", 2.0, "Cost of a rejected silence, in the table of corrected numbers.")
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of streams.", lower_bound=1)
    refuse_empty("streams", "votes", "out", "scores_out", "scores", "human", "page_out")


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    check_together("sample seed without page_out: it", f"{OF_JUDGES} with page_out: it without: nothing else is done")
    # Neither help nor a refused flag needs what reads streams and asks judges.
    from prism_jax.commands.judging import judge, show_people, write_page
    from prism_jax.labelling.judges.judging import JudgesConfig
    from prism_jax.runtime.dataclass_config import from_config_dict

    most_events = JudgesConfig.most_events if options.config is None else options.config.most_events
    if options.page_out is not None:
        return write_page(options.flag_values_dict(), most_events)
    if options.human and options.votes is None:
        check_together("ask c_fa c_fn out scores scores_out against dry_run workers with human: --votes, too")
        return show_people(options.flag_values_dict(), most_events)
    if missing := [f"--{name}" for name in ("config", "streams", "votes") if options[name].value is None]:
        raise ValueError(f"{', '.join(missing)}: found no value, expected one (see --help)")
    config = from_config_dict(JudgesConfig, options.config)
    if options.workers is not None:
        if not options.ask:
            raise ValueError("--workers: found it with --noask, expected it where judges are asked")
        judges = config.endpoints.items()
        endpoints = {name: dataclasses.replace(endpoint, concurrency=options.workers) for name, endpoint in judges}
        config = dataclasses.replace(config, endpoints=endpoints)
    return judge(config, options.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
