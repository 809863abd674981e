"""A decision model's threshold of 0.5 beside the gate: with costs, with calibration, with the person layer.

    python -m studies decision_models --workdir=runs/decision_models [--logs=DIR] [--scores=NAME=FILE]

Three simulated decision models know the simulator's true probabilities and misstate them in a known way; the logs are
those of shipped products with a confidence of their own, where they are present; a scores file is that of any model, as
`calibrate --scores_out=FILE` writes it. Every step is calibrated, and every person predicted, by others alone. What it
prints stands in docs/decision_models.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from absl import flags
from etils import epath
from jaxtyping import Bool, Float64, Shaped

from prism_jax.decision.calibration import CalibrationConfig
from prism_jax.decision.gate import decide, intervene
from prism_jax.decision.metrics import step_costs
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation.answers.columns import EXAMPLES
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.evaluation.answers.study import study
from prism_jax.evaluation.recalibration import out_of_fold
from prism_jax.report.numbers import number
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.report.tables import over_units
from prism_jax.runtime.command import refuse_empty
from prism_jax.scores import Scores
from prism_jax.scores.joining import read_all
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.stream_columns import offer_rows

RATIOS = (0.5, 1.0, 2.0, 4.0)
"""C_FN / C_FA of the tables; C_FA is 1."""
MODELS = {
    "too sure (log-odds × 2)": (2.0, 0.0),
    "too cautious (log-odds × ½)": (0.5, 0.0),
    "too eager (log-odds + 1.5)": (1.0, 1.5),
}
"""How the log-odds of each simulated decision model depend on the true ones: factor and shift."""
HALF, RAW, GATE, PERSON, TRUTH = "threshold 0.5", "gate, raw", "gate, calibrated", "gate, person layer", "gate, truth"
OURS = (GATE, PERSON)
CONSTANT = {"always": True, "never": False}
LOGGED = {"copilot": "its confidence", "coauthor": "its largest log-probability"}
Offers = dict[str, Bool[np.ndarray, "ratios steps"]]


def simulated_scores(streams: int, factor: float, shift: float) -> Scores:
    """The scores of a decision model that misstates the true log-odds, on simulated streams."""
    rows: list[dict[str, Any]] = []
    for index in range(streams):
        stream = simulate(SimulatorConfig(), index, logging="always")
        truth = (
            [step.p_need_true for step in stream.steps],
            [offer.p_accept_true for step in stream.steps for offer in step.candidates],
        )
        need, accept = (scipy.special.expit(factor * scipy.special.logit(np.array(p)) + shift).tolist() for p in truth)
        rows += offer_rows(stream, need, accept, split="test", fold=0)
    return Scores.from_rows(rows)


def cost_table(
    title: str,
    offers: Mapping[str, Bool[np.ndarray, "ratios steps"]],
    accepted: Float64[np.ndarray, "steps"],
    missed: Float64[np.ndarray, "steps"],
    units: Shaped[np.ndarray, "steps"],
    weight: Float64[np.ndarray, "steps"],
) -> Table:
    """Cost per step of each policy at every ratio; the note says where a gate of ours loses."""
    known = ~np.isnan(accepted) & ~np.isnan(missed)
    accepted, missed, units, weight = accepted[known], missed[known], units[known], weight[known]
    rows, losses = [], []
    costs = {
        name: [step_costs(offer[known], accepted, missed, 1.0, ratio) for offer, ratio in zip(own, RATIOS, strict=True)]
        for name, own in offers.items()
    }
    ours = [name for name in OURS if name in costs]
    for name, own in costs.items():
        means = [mean_interval(values, units, weight) for values in own]
        cells = [f"{number(float(m.value))} [{number(float(m.low))}, {number(float(m.high))}]" for m in means]
        rows.append(Row(name, tuple(cells), strong=name == ours[-1]))
        for mine in () if name in (*OURS, TRUTH) else ours:
            for place, ratio in enumerate(RATIOS):
                apart = mean_interval(costs[mine][place] - own[place], units, weight)
                if apart.low > 0:
                    losses.append(f"the {mine} by {number(float(apart.value))} to {name} at {ratio:g}")
    lost = f"Beyond the interval of the difference loses {'; '.join(losses)}." if losses else "No gate of ours loses."
    note = f"{len(units)} steps, {over_units(len(set(units.tolist())), 'people or streams')}. {lost}"
    columns = tuple(Column(f"C_FN = {ratio:g}", "Cost per step at C_FA = 1", text=True) for ratio in RATIOS)
    return Table(title, "policy", columns, (Section("", tuple(rows)),), note)


def scores_table(title: str, scores: Scores) -> Table:
    """The policies on the scores of a decision model."""
    apart = out_of_fold(scores, CalibrationConfig("platt"))
    shape = len(RATIOS), len(apart.steps)
    offers: Offers = {name: np.full(shape, value) for name, value in CONSTANT.items()}
    offers[HALF] = np.broadcast_to((apart.raw[0] >= 0.5) & (apart.raw[1] >= 0.5), shape)
    truth = apart.steps.p_need_true, apart.steps.p_accept_true
    for name, (need, accept) in {RAW: apart.raw, GATE: apart.calibrated, TRUTH: truth}.items():
        if need is not None and accept is not None and not np.isnan(need).any():
            offers[name] = np.stack([np.asarray(decide(need, accept, 1.0, ratio)) for ratio in RATIOS])
    return cost_table(title, offers, apart.accepted, apart.missed, apart.units, apart.weight)


def log_table(name: str, path: epath.Path) -> Table:
    """The policies on the confidence of a log of offers, of which need is certain."""
    studied = study(read_log(path, EXAMPLES[name]))
    y = studied.accepted
    offers: Offers = {policy: np.full((len(RATIOS), len(y)), value) for policy, value in CONSTANT.items()}
    predictions = {RAW: "score", GATE: "score, Platt", PERSON: "score+person"}
    score = studied.predictions["score"]
    if ((score >= 0) & (score <= 1)).all():
        offers[HALF] = np.broadcast_to(score >= 0.5, (len(RATIOS), len(y)))
    else:
        del predictions[RAW]  # no probability
    for policy, prediction in predictions.items():
        p = studied.predictions[prediction]
        offers[policy] = np.stack([np.asarray(intervene(p, p, 1.0, ratio)) for ratio in RATIOS])
    return cost_table(f"{name}: {LOGGED[name]}", offers, y, y, studied.person, studied.weight)


def tables(streams: int, logs: epath.Path, scores: Sequence[str]) -> Iterator[Table]:
    """One table per world."""
    for name, (factor, shift) in MODELS.items():
        yield scores_table(f"Simulated decision model, {name}", simulated_scores(streams, factor, shift))
    for item in scores:
        name, _, path = item.partition("=")
        if not path:
            raise ValueError(f"--scores: found {item!r:.80}, expected NAME=FILE")
        yield scores_table(name, read_all(path))
    for name in LOGGED:
        path = logs / f"{name}.parquet"
        if path.exists():
            yield log_table(name, path)
        else:
            print(f"{path}: no such file; this log is left out")


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer("streams", 1000, "Number of simulated streams.", lower_bound=10)
    flags.DEFINE_string("logs", "../shared/acceptance-logs", "Folder of the real logs; absent ones are left out.")
    flags.DEFINE_multi_string("scores", [], "NAME=FILE|FOLDER|GLOB: scores of a decision model; may be repeated.")
    refuse_empty("logs")


def main() -> Iterable[Table]:
    """Compares the policies in every world."""
    options = flags.FLAGS
    return tables(options.streams, epath.Path(options.logs), options.scores)
