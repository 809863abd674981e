"""Studies by name: what each is, and how one is started, printed and written.

A study is a module with `define_flags` and `main`, which returns or yields its tables, and last a figure if it has one.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys

from absl import flags
from etils import epath

from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the list of studies says of one, which is run by its name alone."""

    shows: str  # what it shows, in a sentence
    takes: str  # how long it takes on two idle cores
    needs: tuple[str, ...] = ()  # flags without which it cannot run; alternatives are separated by a bar
    parts: tuple[str, ...] = ()  # what --of takes


def start(module_name: str, study: Entry) -> None:
    """Starts the study that a module holds, with its flags."""
    module = importlib.import_module(module_name)
    before = set(flags.FLAGS)
    module.define_flags()
    if "workdir" not in flags.FLAGS:
        flags.DEFINE_string("workdir", None, "Folder for the tables as files; by default they are printed only.")
    defined = (flags.FLAGS[flag] for flag in set(flags.FLAGS) - before)
    paths = [flag.name for flag in defined if flag.flag_type() == "string" and flag.default is None]
    refuse_empty(*paths)
    flags.mark_flags_as_required([need for need in study.needs if need in paths])
    sys.modules["__main__"].__doc__ = module.__doc__  # what --help shows
    command.start(lambda arguments: _run(module_name, study, arguments), arguments="the name of the study")


def only(arguments: list[str]) -> str:
    """The one argument beside the flags; ValueError where there are more."""
    if len(arguments) > 1:
        raise ValueError(f"found arguments {', '.join(map(repr, arguments))}, expected one name and flags (see --help)")
    return arguments[0]


def _run(module_name: str, study: Entry, arguments: list[str]) -> None:
    """Runs a study: prints each table as soon as it is there, and writes all of them at the end.

    The parts of a study have files of their own, so that one folder keeps what made each of them.
    """
    from prism_jax.experiments.paper import outputs
    from prism_jax.experiments.paper.study import ExperimentResult
    from prism_jax.report.table import print_all
    from prism_jax.runtime.provenance import provenance

    name, folder, tables, draw = only(arguments), flags.FLAGS.workdir, [], None
    name += f"_{flags.FLAGS.of}" if study.parts else ""
    for made in importlib.import_module(module_name).main():
        if callable(made):
            draw = made
            continue
        print_all([made])
        tables.append(made)
    if folder is None or not tables:
        return
    by_stem = {}
    for number, table in enumerate(tables, start=1):  # the study, the place of the table, and the words of its title
        by_stem["_".join([name, f"{number:02d}", *re.findall("[a-z0-9]+", table.title.lower())])[:80]] = table
    result = ExperimentResult(study_tables=by_stem, draw=draw)
    files = outputs.write(epath.Path(folder), name, result, {"made": provenance()})
    print(f"{name}: {len(files)} files in {folder}")
