"""Predicts the answers of an acceptance log from other people and from each person's own past (docs/people.md).

    python -m prism_jax.people --log=log.csv --columns=person=user,time=shown_at,accepted=taken,score=confidence
        --context=task,length --workdir=runs/people [--c_fa=1 --c_fn=2]

The log is CSV or Parquet. `accepted` may be a condition such as accepted=rating>=4; `time` and `score` are optional.
The costs set the gate, which is printed as a threshold on the score, for everybody and for each person.
"""

from __future__ import annotations

from absl import flags

from prism_jax.acceptance.columns import parse_columns
from prism_jax.acceptance.prediction import run_people
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("log", None, "Acceptance log: .csv or .parquet, one row per offer.")
    flags.DEFINE_list(
        "columns",
        None,
        "Roles of columns: person=..,accepted=..[,time=..,score=..,answered=..,logged=..,propensity=..].",
    )
    flags.DEFINE_list("context", [], "Columns known at the moment of the offer: numbers, flags or categories.")
    flags.DEFINE_string("workdir", None, "Folder for people.json and the tables.")
    flags.DEFINE_bool(
        "weighted",
        False,
        "Weigh answers by clipped inverse propensities, in fits and measures; needs propensity=COLUMN.",
    )
    flags.DEFINE_float("c_fa", 1.0, "C_FA, the cost of an offer that is not accepted.", 1e-9)
    flags.DEFINE_float("c_fn", 2.0, "C_FN, the cost of silence where the offer would have been accepted.", 0.0)
    flags.DEFINE_integer("seed", 0, "Seed of the folds and of the resampling.", lower_bound=0)
    flags.mark_flags_as_required(["log", "columns", "workdir"])
    refuse_empty("log", "workdir")


def main() -> None:
    """Runs what the flags say."""
    options = flags.FLAGS
    columns = parse_columns(options.columns)
    run_people(
        options.log,
        columns,
        options.context,
        options.workdir,
        seed=options.seed,
        weighted=options.weighted,
        threshold=options.c_fa / (options.c_fa + options.c_fn),
    )
    print(f"results: {options.workdir}/people.json")


if __name__ == "__main__":
    define_flags()
    command.start(main)
