"""The commands that read files part by part: small files, and the commands on them in this process."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from etils import epath
from synthetic_scores import POINT

from prism_jax.decision.off_policy import EstimateSettings
from prism_jax.evaluation.answers.columns import parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.runs import answers, counterfactual
from prism_jax.runs.running import Running
from prism_jax.runs.scores_files import evaluate_scores
from prism_jax.scores import write_scores

FILES = ("calibration.json", "evaluation.json", "gate.json")
SETTINGS = EstimateSettings(c_fn=3.0, resamples=300)
ROLES = "person=who,time=at,accepted=took"


def write(path, scores, group=25):
    """Writes row groups of this many rows."""
    write_scores(path, scores)
    pq.write_table(pq.read_table(path), path, row_group_size=group)


def evaluate(pattern, folder, **running):
    chosen = Running(**{"workers": 1, "most": 0, **running})
    evaluate_scores(str(pattern), epath.Path(folder), POINT, running=chosen)
    return {name: (pathlib.Path(folder) / name).read_bytes() for name in FILES}


def ask(pattern, out=None, *, settings=SETTINGS, most=0, workers=1, skip_bad=False, **how):
    """The tables of counterfactual costs."""
    running = Running(most=most, workers=workers, skip_bad=skip_bad)
    counterfactual.estimate_scores(str(pattern), settings, out=out and str(out), running=running, **how)
    return {} if out is None else {path.name: path.read_bytes() for path in out.iterdir()}


def simulated(seed=0, people=12, rows=600):
    """A log with everything that a log can have; people who differ, and answers that come late."""
    rng = np.random.default_rng(seed)
    person = rng.integers(0, people, rows)
    logits = rng.normal(0, 1.5, rows)
    shown = rng.random(rows) < 0.3 + 0.6 / (1 + np.exp(-logits))
    took = rng.random(rows) < 1 / (1 + np.exp(-(logits - 0.4 + rng.normal(size=people)[person])))
    at = np.sort(np.round(rng.uniform(0, 1e6, rows), 3))
    return pa.table(
        {
            "who": [f"person {i}" for i in person],
            "at": at,
            "took": took.astype(float),
            "p": pa.array(1 / (1 + np.exp(-1.7 * logits)), mask=rng.random(rows) < 0.1),
            "points": pa.array(40 + 12 * logits, mask=rng.random(rows) < 0.1),
            "later": at + rng.exponential(3e4, rows),
            "shown": shown,
            "took_shown": pa.array(took.astype(float), mask=~shown),
            "where": pa.array(rng.choice(["chat", "editor", "mail"], rows), mask=rng.random(rows) < 0.1),
            "share": 0.3 + 0.6 / (1 + np.exp(-logits)),
            "said": np.where(np.abs(logits) > 1.5, logits > 0, 1 / (1 + np.exp(-1.7 * logits))),  # some as certain
        }
    )


def in_parts(pattern, roles, folder, weighted=False, shown_only=False, **running):
    running = Running(**{"workers": 1, "most": 0} | running)
    question = Question(1.0, 2.0, weighted=weighted)
    return answers.evaluate_log(pattern, parse_columns(roles), folder, question, shown_only=shown_only, running=running)


def leaves(tree, path=""):
    """Every value of a JSON value, by its path."""
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path, tree
