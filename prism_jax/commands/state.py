"""Looks after the state of an agent or a server.

    python -m prism_jax state --state=DIR --show

    --show                              prints how much there is, what is known of people, and a shadow mode's report
    --records_out=FILE.jsonl            writes the records of all partitions (or FILE.parquet)
    --people_out=FILE.json              writes everything that is known of people
    --import_records=FILE --input=FILE  takes the records of an agent of an earlier version, to resume from
    --import_people=FILE                takes its store of people (beside the records or alone), or an export
    --population_out=FILE.json          fits the parameters of the person layer to the records
    --set_population=FILE.json          changes the parameters of the person layer
    --forget=NAME                       deletes a person with their streams and records
    --rate=SCENARIOS --person=NAME --model=DIR    asks the person to rate five offers

The folder is that of `python -m prism_jax agent --state=DIR` (docs/agent.md, docs/personal_agent.md) or of `python -m
prism_jax serve --state=DIR` (docs/service.md). What changes it needs it free.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags
from etils import epath

from prism_jax.agent.people import fit_from_records, read_records
from prism_jax.agent.records_file import remove_person
from prism_jax.agent.service.shadow import shadow_report, watched_of
from prism_jax.agent.state.moving import export_records, import_people, import_records
from prism_jax.agent.state.partition import StateError
from prism_jax.agent.state.places import STORE, check_idle, folder_of, partition_files, readable, tenants_of
from prism_jax.agent.state.reading import all_records
from prism_jax.agent.state.store import StateStore, open_store
from prism_jax.decision import alarm
from prism_jax.people.exports import StoreError, population_from
from prism_jax.people.store import Person, people_of, read_file
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty
from prism_jax.runtime.files import check_absent, encode_json, read_object, temporary_beside, writing

JOBS = (
    *("show", "records_out", "people_out", "import_records", "import_people", "population_out", "set_population"),
    *("forget", "rate"),
)
"""Flags of which a call has one; the records and people of one agent are imported together."""
_TOGETHER = (
    "stream since until without records_out: it",
    "person without records_out rate: one of them",
    "input keep_texts without import_records: it",
    "partitions without import_records import_people: one of them",
    "records without forget population_out: one of them",
    "records_gone without forget: it",
    "model without rate: it",
    "import_records without input: what the agent has read: without it no stream could be resumed",
    "rate without person: who is asked",
    "rate without model: the model that reads the scenarios",
)
MOST_SHOWN = 50
"""Largest number of people that --show lists."""


def run_job(options: Mapping[str, Any]) -> None:
    """Does what the flags, by name, ask for; ValueError and OSError say in one line why not."""
    asked = [name for name in JOBS if options[name]]
    if len(asked) != 1 and asked != ["import_records", "import_people"]:
        named = " and ".join(f"--{name}" for name in asked) or "none"
        raise ValueError(f"flags: found {named}, expected one of {', '.join(f'--{name}' for name in JOBS)}")
    job = asked[0]
    check_together(*_TOGETHER, options=options)
    for name in ("since", "until"):
        if options[name] is not None and not math.isfinite(options[name]):
            raise ValueError(f"--{name}: found {options[name]}, expected a finite number of seconds")
    folder = folder_of(options["state"], options["tenant"])
    if job.startswith("import_"):
        _import(folder, options)
        return
    if job != "rate" and not partition_files(folder):
        tenants = ", ".join(tenants_of(options["state"]))
        there = f"; of these there are, for --tenant: {tenants}" if tenants else ""
        raise StateError(f"{folder}: found no partitions, expected the state of an agent or of a tenant{there}")
    if job in ("show", "records_out"):
        check_idle(folder)
        show(folder) if job == "show" else _export(folder, options)
        return
    _look_after(folder, job, options)


def _look_after(folder: epath.Path, job: str, options: Mapping[str, Any]) -> None:
    """The jobs that need the store for themselves."""
    with open_store(folder) as store:
        if job == "people_out":
            export_people(store, options["people_out"])
        elif job == "population_out":
            logs = [all_records(folder), *map(read_records, options["records"])]
            place = ", ".join([str(folder), *options["records"]])
            fit_from_records(logs, options["population_out"], place)
        elif job == "set_population":
            source = options["set_population"]
            tree = read_object(source, "`python -m prism_jax state --population_out`", StoreError)
            store.set_population(population_from(tree, source))
        elif job == "forget":
            forget(store, options["forget"], options["records"], options["records_gone"])
        else:
            from prism_jax.agent.rating import rate_offers  # which needs the libraries of a model

            rate_offers(store, options["person"], options["model"], options["rate"], options["questions"])


def show(folder: epath.Path) -> None:
    """Prints how much a store holds, and what is known of people, by number: names stay in the store."""
    names = ("streams", "people", "events", "log")
    totals, size = dict.fromkeys(names, 0), 0
    everybody = list[tuple[str, Person]]()
    for place, ask in readable(folder):
        size += place.path.stat().length
        before = f"{place.number}/" if place.partitions > 1 else ""
        everybody += [(f"{before}{person.number}", person) for person in people_of(ask, str(place.path))]
        for name in names:
            totals[name] += ask(f"SELECT count(*) FROM {name}", ())[0][0]
    print(
        f"streams: {totals['streams']}; people who have answered: {totals['people']}; events: {totals['events']}; "
        f"records: {totals['log']}; {size} bytes in {len(partition_files(folder))} partitions"
    )
    report = shadow_report(watched_of(record) for record in all_records(folder))
    if report.decisions:
        print(report.text())
    tree = read_object(folder / STORE, "a store of an agent's state", StateError)
    population = population_from(tree.get("population"), f"{folder / STORE}: population")
    _show_people(everybody, "; ".join(f"{name} {value:g}" for name, value in population._asdict().items()))


def _show_people(everybody: Sequence[tuple[str, Person]], population: str) -> None:
    """Prints a row per person; of many, those with alarms and the newest."""
    alarmed = [one for one in everybody if one[1].rang]
    newest = [one for one in reversed(everybody) if not one[1].rang]
    chosen = {name for name, _ in (alarmed + newest)[:MOST_SHOWN]}
    rows = tuple(
        Row(
            name,
            (
                f"{person.answers:,}",
                f"{person.belief.mean:+.2f}",
                f"{person.belief.variance**0.5:.2f}",
                f"{float(alarm.log_martingale(np.array(person.alarm))):+.1f}",
                "yes" if person.rang else "no",
            ),
        )
        for name, person in everybody
        if name in chosen
    )
    columns = (
        Column("answers", "Number of the person's answers."),
        Column("own rate", "Mean of the person's own rate, in log-odds; 0 is the population's."),
        Column("doubt", "Standard deviation of it."),
        Column("log M", "Logarithm of the capital of the bets against the stated probabilities."),
        Column("alarm", "Whether the alarm has ever rung.", text=True),
    )
    note = f"{len(rows):,} of {len(everybody):,} people; {len(alarmed):,} alarms. Population: {population}."
    print_all([Table("People", "number", columns, (Section("", rows),), note)])


def _export(folder: epath.Path, options: Mapping[str, Any]) -> None:
    check_absent(options["records_out"])
    conditions = {name: options[name] for name in ("stream", "person", "since", "until")}
    with writing(options["records_out"]):
        count = export_records(folder, options["records_out"], **conditions)
    print(f"{count} records in {options['records_out']}")


def export_people(store: StateStore, out: str) -> None:
    """Writes all people of a store of one partition as JSON, readable by its owner only; after an error, nothing."""
    check_absent(out)
    if store.partitions > 1:
        raise StateError(
            f"{store.folder}: found {store.partitions} partitions, expected one; a server gives what it knows of a "
            "person at GET /v1/people/NAME"
        )
    content = encode_json(store.partition(0).people.describe())
    temporary = temporary_beside(epath.Path(out))
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _import(folder: epath.Path, options: Mapping[str, Any]) -> None:
    content = read_file(options["import_people"]) if options["import_people"] else None
    population = None if content is None else content.population
    waiting, said = 0, []
    partitions = options["partitions"] or (None if partition_files(folder) else 1)  # a new store has one by default
    with StateStore(folder, partitions=partitions, population=population) as store:
        if options["import_records"]:
            moved = import_records(store, options["import_records"], options["input"], keep_texts=options["keep_texts"])
            waiting, said = moved.waiting, [f"{moved.records} records of {moved.streams} streams"]
        if content is not None:
            said.append(f"{import_people(store, content, options['import_records'])} people")
    more = f"; {waiting} events of the input were not decided on yet" if waiting else ""
    print(f"{' and '.join(said)} in {folder}{more}")


def forget(store: StateStore, person: str, records: Sequence[str] = (), gone: Sequence[str] = ()) -> None:
    """Deletes a person: their streams in the files of records, then all that the store has of them.

    `records` are files beside those that the store knows. `gone` are files that the store knows and that do not exist
    any more; it forgets them. Raises ValueError or OSError in one line, naming the file that could not be changed. The
    person then still is in the store, and the same call again continues.
    """
    files = files_of_records(store, records, gone)
    removed = sum(remove_person(file, person) for file in files)
    is_known = store.of(person).knows(person)
    streams = store.forget_person(person, files)
    if not is_known and not removed:
        raise ValueError(f"{store.folder}: found no such person, neither here nor in {len(files)} files of records")
    print(f"deleted: {'one person' if is_known else 'nobody'}, {len(streams)} streams, {removed} records in files")


def files_of_records(store: StateStore, records: Sequence[str], gone: Sequence[str]) -> list[str]:
    """The files of records that a store knows, in the order in which they began, and then those that are given.

    The store forgets the files that are `gone`.

    Raises:
      ValueError: for a file that is said to be gone and exists, or that the store does not know.
      FileNotFoundError: for any other file that does not exist.
    """
    known = {path: partition for _, partition in store.made() for path in partition.people.records()}
    for file in map(os.path.realpath, gone):
        if os.path.exists(file):  # noqa: PTH110  beside realpath
            raise ValueError(f"--records_gone: {file}: found the file, expected one that does not exist any more")
        if file not in known:
            raise ValueError(
                f"--records_gone: {file}: found a file that the state does not know, expected one of "
                f"{', '.join(known) or 'none'}"
            )
        with (partition := known.pop(file)).transaction():
            partition.people.drop_records(file)
    files = list(dict.fromkeys([*known, *map(os.path.realpath, records)]))
    for file in files:
        if not os.path.isfile(file):  # noqa: PTH113  beside realpath
            raise FileNotFoundError(
                f"{file}: found no such file, expected the records that an agent wrote there: give its new place with "
                "--records and take the old one out with --records_gone"
            )
    return files


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("state", None, "Folder of the state.", required=True)
    flags.DEFINE_string("tenant", "default", "Whose state it is.")
    flags.DEFINE_bool(
        "show", None, "Print how much there is, what is known of people, and what a shadow mode has found."
    )
    flags.DEFINE_string(
        "records_out", None, "File to write the records to: JSON lines, or Parquet if it ends in .parquet."
    )
    flags.DEFINE_string("stream", None, "With --records_out: the records of this stream only.")
    flags.DEFINE_string(
        "person", None, "With --records_out: the records of this person only. With --rate: who is asked."
    )
    flags.DEFINE_float("since", None, "With --records_out: records written then or later, in seconds since 1970.")
    flags.DEFINE_float("until", None, "With --records_out: records written before, in seconds since 1970.")
    flags.DEFINE_string("people_out", None, "JSON file to write everything to that is known of people.")
    flags.DEFINE_string("import_records", None, "File of the records of an earlier version's agent, to resume from.")
    flags.DEFINE_string("input", None, "With --import_records: what the agent has read.")
    flags.DEFINE_bool("keep_texts", False, "With --import_records: keep the events' texts in the state.")
    flags.DEFINE_string("import_people", None, "Store of people of an earlier version's agent, or --people_out.")
    flags.DEFINE_integer("partitions", None, "With an import: number of partitions; default: 1.", 1, 1024)
    flags.DEFINE_string("population_out", None, "JSON file to write parameters of the person layer to.")
    flags.DEFINE_string("set_population", None, "File of --population_out, to use from now on.")
    flags.DEFINE_string("forget", None, "Name of a person to delete, with their streams and records.")
    flags.DEFINE_multi_string(
        "records", [], "With --forget or --population_out: a file of records beside those that the state knows."
    )
    flags.DEFINE_multi_string("records_gone", [], "With --forget: a file that the state knows and that is gone.")
    flags.DEFINE_string("rate", None, "File of scenarios whose offers a person rates.")
    flags.DEFINE_string("model", None, "With --rate: directory of an exported model, or workdir of a trained run.")
    flags.DEFINE_integer("questions", 5, "With --rate: most offers to rate.", lower_bound=1)
    refuse_empty("state", "tenant", "input", "person", "model", *(job for job in JOBS if job not in ("show", "forget")))


def main() -> None:
    """Runs what the flags say."""
    run_job(flags.FLAGS.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
