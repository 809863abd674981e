"""Looks after the state of a server: `python -m prism_jax state --state=DIR` and one of the flags below.

    --show                                                  prints how much there is, and the report of a shadow mode
    --export=FILE.jsonl                                     writes the records of all partitions (or FILE.parquet)
    --import_records=FILE --input=FILE [--people=FILE]      takes what `python -m prism_jax agent` has written

The folder is that of `python -m prism_jax serve --state=DIR` (docs/service.md). Only an import needs it free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from absl import flags
from etils import epath

from prism_jax.agent.state.moving import export_records, import_files
from prism_jax.agent.state.partition import StateError
from prism_jax.agent.state.places import check_idle, partition_files, readable
from prism_jax.agent.state.reading import all_records
from prism_jax.agent.state.store import StateStore
from prism_jax.people.store import PeopleStore
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.files import check_absent, check_regular
from prism_jax.service.shadow import shadow_report, watched_of

JOBS = ("show", "export", "import_records")
"""Flags of which a call has one."""
_NEED = {
    **dict.fromkeys(("stream", "person", "since", "until"), "export"),
    **dict.fromkeys(("input", "people", "partitions"), "import_records"),
}
"""What the other flags belong to."""


def run_job(options: Mapping[str, Any]) -> None:
    """Does what the flags, by name, ask for; ValueError and OSError say in one line why not."""
    asked = [name for name in JOBS if options[name]]
    if len(asked) != 1:
        named = " and ".join(f"--{name}" for name in asked) or "none"
        raise ValueError(f"flags: found {named}, expected one of {', '.join(f'--{name}' for name in JOBS)}")
    for name, job in _NEED.items():
        if options[name] is not None and job != asked[0]:
            raise ValueError(f"--{name}: found it with --{asked[0]}, expected it with --{job} only")
        if isinstance(options[name], float) and not math.isfinite(options[name]):
            raise ValueError(f"--{name}: found {options[name]}, expected a finite number of seconds")
    folder = epath.Path(options["state"]) / "tenants" / options["tenant"]
    if options["import_records"]:
        _import(folder, options)
        return
    if not partition_files(folder):
        raise StateError(f"{folder}: found no partitions, expected the store of a tenant")
    check_idle(folder)
    if options["export"]:
        check_absent(options["export"])
        conditions = {name: options[name] for name in ("stream", "person", "since", "until")}
        count = export_records(folder, options["export"], **conditions)
        print(f"{count} records in {options['export']}")
    else:
        show(folder)


def show(folder: epath.Path) -> None:
    """Prints how much a store holds."""
    names = ("streams", "people", "events", "log")
    totals, size = dict.fromkeys(names, 0), 0
    for place, ask in readable(folder):
        size += place.path.stat().length
        for name in names:
            totals[name] += ask(f"SELECT count(*) FROM {name}", ())[0][0]
    print(
        f"streams: {totals['streams']}; people who have answered: {totals['people']}; events: {totals['events']}; "
        f"records: {totals['log']}; {size} bytes in {len(partition_files(folder))} partitions"
    )
    report = shadow_report(watched_of(record) for record in all_records(folder))
    if report.decisions:
        print(report.text())


def _import(folder: epath.Path, options: Mapping[str, Any]) -> None:
    if options["input"] is None:
        raise ValueError("--input: found none, expected what the agent has read: without it no stream could be resumed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    people, population = [], None
    if options["people"] is not None:
        check_regular(options["people"], StateError, "the agent's store of people")
        with PeopleStore(options["people"]) as known:
            people, population = list(known), known.population
    with StateStore(folder, partitions=options["partitions"], population=population) as store:
        moved = import_files(store, options["import_records"], options["input"], people)
    waiting = f"; {moved.waiting} events of the input were not decided on yet" if moved.waiting else ""
    print(f"{moved.records} records of {moved.streams} streams and {moved.people} people in {folder}{waiting}")


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("state", None, "Folder of the state.", required=True)
    flags.DEFINE_string("tenant", "default", "Whose state it is.")
    flags.DEFINE_bool("show", None, "Print how much there is, and what a shadow mode has found.")
    flags.DEFINE_string("export", None, "File to write the records to: JSON lines, or Parquet if it ends in .parquet.")
    flags.DEFINE_string("stream", None, "With --export: the records of this stream only.")
    flags.DEFINE_string("person", None, "With --export: the records of this person only.")
    flags.DEFINE_float("since", None, "With --export: records written then or later, in seconds since 1970.")
    flags.DEFINE_float("until", None, "With --export: records written before, in seconds since 1970.")
    flags.DEFINE_string("import_records", None, "File of an agent's --records, to go on from as a server.")
    flags.DEFINE_string("input", None, "With --import_records: what the agent has read.")
    flags.DEFINE_string("people", None, "With --import_records: the agent's store of people.")
    flags.DEFINE_integer("partitions", None, "With --import_records: number of partitions; default: 256.", 1, 1024)
    refuse_empty("state", "tenant", "export", "import_records", "input", "people")


def main() -> None:
    """Runs what the flags say."""
    run_job(flags.FLAGS.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
