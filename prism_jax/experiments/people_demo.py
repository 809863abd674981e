"""The study of people on a log whose truth is known, and on the real logs where they are present (docs/people.md).

    python -m prism_jax.experiments people_demo --workdir=runs/people_demo

Takes one to two minutes for the simulated log.
"""

from __future__ import annotations

from collections.abc import Iterable

from absl import flags
from etils import epath

from prism_jax.people.columns import parse_columns
from prism_jax.people.simulated import COLUMNS, CONTEXT, simulate_log
from prism_jax.recipes.people import run_people
from prism_jax.report.table import Table
from prism_jax.runtime import command
from prism_jax.runtime.files import write_bytes
from prism_jax.runtime.flag_checks import refuse_empty

LOGS = {
    "copilot": (
        "person=person,time=time,accepted=accepted,score=confidence",
        "task,typing,comp_char_len,document_length,mean_alternative_log_prob,mean_log_prob,num_lines,num_tokens,"
        "prompt_char_len,prompt_end_pos,quantile,time_since_issued_ms",
    ),
    "distraction": ("person=person,time=time,accepted=distraction>=4", "duration_s,location,activity,purpose"),
    "coauthor": (
        "person=person,time=time,accepted=accepted",
        "number,kind,temperature,frequency_penalty,offers,latency_ms,max_log_prob,max_log_prob_per_word,mean_words",
    ),
}
"""The columns and the context of each real log."""


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("workdir", "runs/people_demo", "Folder for the logs and the results, one folder per log.")
    flags.DEFINE_string(
        "logs", "../shared/acceptance-logs", "Folder of the real logs; logs that are absent are left out."
    )
    flags.DEFINE_integer("people", 60, "Number of simulated people.", lower_bound=4)
    flags.DEFINE_integer("answers", 50, "Mean number of offers of a simulated person.", lower_bound=2)
    refuse_empty("workdir")


def main() -> Iterable[Table]:
    """Simulates a log and studies it, then the real logs; their tables are printed and written by log."""
    options = flags.FLAGS
    folder = epath.Path(options.workdir)
    folder.mkdir(parents=True, exist_ok=True)
    simulated = simulate_log(options.people, options.answers)
    path = folder / "simulated.csv"
    write_bytes(path, simulated.to_csv())
    print(f"{path}: simulated, so the truth is known")
    run_people(str(path), parse_columns(COLUMNS), CONTEXT, str(folder / "simulated"), truth=simulated.truth)
    for name, (columns, context) in LOGS.items():
        path = epath.Path(options.logs) / f"{name}.parquet"
        if path.is_file():
            print(f"\n{path}")
            run_people(str(path), parse_columns(columns), context.split(","), str(folder / name))
    return []


if __name__ == "__main__":
    command.moved("experiments people_demo")
