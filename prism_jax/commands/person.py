"""Looks after what an agent knows of people: `python -m prism_jax person --store=FILE` and one of the flags below.

    --show                          prints what is known, by number
    --export=FILE.json              writes everything
    --import_from=FILE.json         makes the store from such a file
    --fit_population=FILE.json      fits the parameters of the person layer to the records that the store knows
    --set_population=FILE.json      changes the parameters of the person layer
    --forget=NAME                   deletes a person and their records
    --rate=SCENARIOS --person=NAME --model=DIR    asks the person to rate five offers

The store is the file that `python -m prism_jax.agent --people=FILE` makes (docs/personal_agent.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags
from etils import epath

from prism_jax.agent.records_file import remove_person
from prism_jax.decision import alarm
from prism_jax.people.exports import StoreError, population_from
from prism_jax.people.store import PeopleStore
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.files import check_absent, encode_json, read_object, temporary_beside

JOBS = ("show", "export", "import_from", "fit_population", "set_population", "forget", "rate")
"""Flags of `prism_jax person`, of which a call has one."""
_NEED = {
    **dict.fromkeys(("records", "records_gone"), ("forget", "fit_population")),
    "person": ("rate",),
    "model": ("rate",),
}
"""What the other flags belong to."""
MOST_SHOWN = 50
"""Largest number of people that --show lists."""


def run_job(options: Mapping[str, Any]) -> None:
    """Does what the flags of `prism_jax person`, by name, ask for; ValueError and OSError say in one line why not."""
    jobs_asked = [name for name in JOBS if options[name]]
    if len(jobs_asked) != 1:
        flags = " and ".join(f"--{name}" for name in jobs_asked) or "none"
        raise ValueError(f"flags: found {flags}, expected one of {', '.join(f'--{name}' for name in JOBS)}")
    path, job = options["store"], jobs_asked[0]
    for name, jobs in _NEED.items():
        if options[name] and job not in jobs:
            only = " or ".join(f"--{choice}" for choice in jobs)
            raise ValueError(f"--{name}: found it with --{job}, expected it with {only} only")
    if job == "show":
        show(path)
    elif job == "export":
        export_store(path, options["export"])
    elif job == "import_from":
        import_store(path, options["import_from"])
    elif job == "fit_population":
        from prism_jax.agent.population import fit_from_records  # a store is looked after without SciPy

        with open_store(path) as store:
            files = files_of_records(store, options["records"], options["records_gone"])
            fit_from_records(files, options["fit_population"])
    elif job == "set_population":
        set_population(path, options["set_population"])
    elif job == "forget":
        forget(path, options["forget"], options["records"], options["records_gone"])
    else:
        from prism_jax.agent.rating import rate_offers  # a store is looked after without a model's libraries

        if missing := [name for name in ("person", "model") if not options[name]]:
            raise ValueError(f"--{missing[0]}: found none, expected it with --rate")
        rate_offers(path, options["person"], options["model"], options["rate"], options["questions"])


def show(path: str) -> None:
    """Prints what is known of people, by number: names stay in the store. Of many, those with alarms and the newest."""
    with open_store(path) as store:
        everybody = list(store)
        alarmed = [person for person in everybody if person.rang]
        people = (alarmed + [person for person in reversed(everybody) if not person.rang])[:MOST_SHOWN]
        parameters = ", ".join(f"{name} {value:g}" for name, value in store.population._asdict().items())
    rows = tuple(
        Row(
            str(person.number),
            (
                f"{person.answers:,}",
                f"{person.belief.mean:+.2f}",
                f"{person.belief.variance**0.5:.2f}",
                f"{float(alarm.log_martingale(np.array(person.alarm))):+.1f}",
                "yes" if person.rang else "no",
            ),
        )
        for person in sorted(people, key=lambda person: person.number)
    )
    columns = (
        Column("answers", "Number of the person's answers."),
        Column("own rate", "Mean of the person's own rate, in log-odds; 0 is the population's."),
        Column("doubt", "Standard deviation of it."),
        Column("log M", "Logarithm of the capital of the bets against the stated probabilities."),
        Column("alarm", "Whether the alarm has ever rung.", text=True),
    )
    note = f"{len(people):,} of {len(everybody):,} people; {len(alarmed):,} alarms. Population: {parameters}."
    print_all([Table("People", "number", columns, (Section("", rows),), note)])


def export_store(path: str, out: str) -> None:
    """Writes the whole store as JSON, readable by its owner only; after a StoreError or OSError nothing is written."""
    check_absent(out)
    with open_store(path) as store:
        content = encode_json(store.describe())
    temporary = temporary_beside(epath.Path(out))
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def import_store(path: str, source: str) -> None:
    """Makes a store from what `export_store` wrote; after a StoreError or OSError there is no store."""
    check_absent(path)
    tree = read_object(source, "`python -m prism_jax person --export`", StoreError)
    try:
        with PeopleStore(path) as store:
            store.restore(tree, source)
    except BaseException:
        epath.Path(path).unlink(missing_ok=True)
        raise


def set_population(path: str, source: str) -> None:
    """Changes the parameters of the person layer; what is known of people stays."""
    population = population_from(
        read_object(source, "`python -m prism_jax person --fit_population`", StoreError), source
    )
    with open_store(path) as store:
        store.set_population(population)


def forget(path: str, person: str, records: Sequence[str], gone: Sequence[str] = ()) -> None:
    """Deletes a person: their streams in the files of records, then their row of the store.

    `records` are files beside those that the store knows. `gone` are files that the store knows and that do not exist
    any more; it forgets them. Raises ValueError or OSError in one line, naming the file that could not be changed. The
    person then still is in the store, and the same call again continues.
    """
    with open_store(path) as store:
        files = files_of_records(store, records, gone)
        removed = sum(remove_person(file, person) for file in files)
        in_store = store.forget(person)
    if not in_store and not removed:
        raise ValueError(f"{path}: found no such person, neither here nor in {len(files)} files of records")
    sys.stdout.write(f"deleted: {'one person' if in_store else 'nobody'} of the store, {removed} records\n")


def files_of_records(store: PeopleStore, records: Sequence[str], gone: Sequence[str]) -> list[str]:
    """The files of records that a store knows, in the order in which they began, and then those that are given.

    The store forgets the files that are `gone`.

    Raises:
      ValueError: for a file that is said to be gone and exists, or that the store does not know.
      FileNotFoundError: for any other file that does not exist.
    """
    for file in map(os.path.realpath, gone):
        if os.path.exists(file):  # noqa: PTH110  beside realpath
            raise ValueError(f"--records_gone: {file}: found the file, expected one that does not exist any more")
        if file not in store.records():
            known_files = ", ".join(store.records()) or "none"
            raise ValueError(
                f"--records_gone: {file}: found a file that the store does not know, expected one of {known_files}"
            )
        store.drop_records(file)
    files = list(dict.fromkeys([*store.records(), *map(os.path.realpath, records)]))
    for file in files:
        if not os.path.isfile(file):  # noqa: PTH113  beside realpath
            raise FileNotFoundError(
                f"{file}: found no such file, expected the records that an agent wrote there: give its new place with "
                "--records and take the old one out with --records_gone"
            )
    return files


def open_store(path: str) -> PeopleStore:
    """An existing store; StoreError or FileNotFoundError if there is none."""
    place = epath.Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{path}: found no such file, expected the store of an agent (--people)")
    if place.is_dir() or place.stat().length == 0:
        content = "a folder" if place.is_dir() else "an empty file"
        raise StoreError(f"{path}: found {content}, expected the store of an agent (--people)")
    return PeopleStore(path)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("store", None, "The store of people.", required=True)
    flags.DEFINE_bool("show", None, "Print what is known of everybody, without names.")
    flags.DEFINE_string("export", None, "JSON file to write the store to.")
    flags.DEFINE_string("import_from", None, "JSON file to make the store from.")
    flags.DEFINE_string("fit_population", None, "JSON file to write parameters of the person layer to.")
    flags.DEFINE_string("set_population", None, "File of --fit_population, to use from now on.")
    flags.DEFINE_string("forget", None, "Name of a person to delete, with their decision records.")
    flags.DEFINE_multi_string(
        "records", [], "With --forget or --fit_population: a file of records beside those that the store knows."
    )
    flags.DEFINE_multi_string("records_gone", [], "With the same: a file that the store knows and that is gone.")
    flags.DEFINE_string("rate", None, "File of scenarios whose offers a person rates.")
    flags.DEFINE_string("person", None, "With --rate: name of the person.")
    flags.DEFINE_string("model", None, "With --rate: directory of an exported model, or workdir of a trained run.")
    flags.DEFINE_integer("questions", 5, "With --rate: most offers to rate.", lower_bound=1)
    refuse_empty("store", *(job for job in JOBS if job not in ("show", "forget")), "model")


def main() -> None:
    """Runs what the flags say."""
    run_job(flags.FLAGS.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
