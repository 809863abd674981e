"""The study of people on a log whose truth is known, and on real logs where they are present (docs/acceptance_logs.md).

    python -m prism_jax experiments people_demo --workdir=runs/people_demo

Takes one to two minutes for the simulated log.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import scipy
from absl import flags
from etils import epath
from jaxtyping import Float64

from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.report.table import Table
from prism_jax.runs.answers import evaluate_log
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.files import write_bytes

COLUMNS = "person=user,time=shown_at,accepted=taken,score=confidence"
CONTEXT = ("task", "length", "focused")
SPREAD, DRIFT = 0.9, 0.005
"""Standard deviation of people's own rates, and the variance by which they move per answer."""
_TASKS = {"code": 0.6, "mail": 0.0, "search": -0.7, "calendar": -0.2}


class SimulatedLog(NamedTuple):
    """A log and the truth about it."""

    table: pa.Table  # one row per offer, in the order of time
    truth: Float64[np.ndarray, " rows"]  # probability of acceptance, from the person's own rate at that moment

    def to_csv(self) -> bytes:
        """The table as a CSV file."""
        file = io.BytesIO()
        pyarrow.csv.write_csv(self.table, file)
        return file.getvalue()


def simulate_log(people: int = 60, answers: int = 50, seed: int = 0) -> SimulatedLog:
    """Draws a log: people of different rates that drift, and a confidence that is too sure of itself.

    The confidence knows half of what the context does not, and its log-odds are 1.8 times too large. `length` is
    missing on one row in twenty, and lengths near 40 are the best. `answers` is the mean number of offers of a person;
    the numbers differ by a factor of about ten.
    """
    rng = np.random.default_rng(seed)
    counts = 1 + rng.poisson(rng.gamma(2.0, answers / 2, people))
    person = rng.permutation(np.repeat(np.arange(people), counts))
    rows = len(person)
    task = rng.choice(list(_TASKS), rows)
    length = np.round(rng.lognormal(3.5, 0.6, rows))
    focused, hidden, noise = rng.random(rows) < 0.4, rng.normal(size=rows), rng.normal(size=rows)
    known = np.array([_TASKS[name] for name in task]) - 0.8 * focused - 0.7 * np.abs(np.log(length / 40))
    log_odds = 0.3 + known + 0.7 * hidden
    own = np.empty(rows)
    for i in range(people):
        (mine,) = np.nonzero(person == i)
        own[mine] = rng.normal(0, SPREAD) + np.cumsum(rng.normal(0, DRIFT**0.5, len(mine)))
    truth = scipy.special.expit(log_odds + own)
    table = {
        "user": [f"user {i:03d}" for i in person],
        "shown_at": np.round(1.7e9 + np.cumsum(rng.exponential(60.0, rows)), 1),
        "confidence": np.round(scipy.special.expit(1.8 * (0.5 + 0.5 * known + 0.35 * hidden + 0.5 * noise)), 4),
        "task": task,
        "length": pa.array(length, mask=rng.random(rows) < 0.05),
        "focused": focused,
        "taken": rng.random(rows) < truth,
    }
    return SimulatedLog(pa.table(table), truth)


LOGS = {
    "copilot": (
        "person=person,time=time,accepted=accepted,score=confidence",
        "task,typing,comp_char_len,document_length,mean_alternative_log_prob,mean_log_prob,num_lines,num_tokens,"
        "prompt_char_len,prompt_end_pos,quantile,time_since_issued_ms",
    ),
    "distraction": ("person=person,time=time,accepted=distraction<4", "duration_s,location,activity,purpose"),
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
    truth, columns = simulated.truth, parse_columns(COLUMNS)
    evaluate_log(path, columns, folder / "simulated", Question(1.0, 2.0, CONTEXT), truth=truth)
    for name, (roles, context) in LOGS.items():
        path = epath.Path(options.logs) / f"{name}.parquet"
        if path.is_file():
            print(f"\n{path}")
            columns = parse_columns(roles)
            evaluate_log(path, columns, folder / name, Question(1.0, 2.0, context.split(",")))
    return []
