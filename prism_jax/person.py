"""Looks after what an agent knows of people: `python -m prism_jax.person --store=FILE` and one of the flags below.

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

from absl import flags

from prism_jax.recipes.people_store import JOBS, run
from prism_jax.runtime import command
from prism_jax.runtime.flag_checks import refuse_empty


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
    run(flags.FLAGS.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
