"""Is the second signal worth more on human judgements if a probe estimates need given acceptance?

    python -m prism_jax experiments probe_need_target --source=DIR --workdir=DIR [--weights=GGUF]

Every stream of ProactiveBench is tested once, alone, by a probe that is fitted on the others, as in
`prism_jax.experiments.probe`: once with `fit.need_target` marginal and once with given_accept. Both have the same
p_accept. The gate on both signals is compared with p_accept alone, which offers at as many steps, those where p_accept
is highest. A step has one offer, the one of highest p_accept: silence costs C_FN where help was needed and that offer
would have been accepted (docs/maths.md, section 8), so that given_accept is what the gate asks for. The definition
`any_valid` is left out: where an offer is accepted it is always 1. docs/probe.md has the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

import numpy as np
from absl import flags
from etils import epath
from jaxtyping import Float64

from prism_jax.decision.calibration import Temperature
from prism_jax.decision.uncertainty import mean_interval
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.evaluation.replay import RATIOS, Replay, costs, gate_offers, most_accepted, replay
from prism_jax.evaluation.splits import TEST
from prism_jax.experiments.probe import STATES, WORDS, States, score_probe
from prism_jax.probe.kept_states import states_of
from prism_jax.probe.probe_config import FitConfig, NeedTarget, StatesConfig
from prism_jax.report.numbers import show_estimate
from prism_jax.report.table import Column, Row, Section, Table
from prism_jax.scores import Scores
from prism_jax.streams import Stream, proactivebench
from prism_jax.streams.proactivebench_source import Need

NEEDS: tuple[Need, ...] = ("strict", "majority")
_AS_IT_IS = SignalFit(Temperature(1.0), base_rate=0.5, count=1, effective_count=1.0)
"""A probe's maps are fitted already, on nested predictions; only the map of a fit is used here."""
_COLUMNS = (
    Column("marginal", "Cost of the gate minus that of p_accept alone at the same speak rate, p_need unconditional."),
    Column("given_accept", "The same, with p_need given acceptance."),
    Column("given_accept minus marginal", "Cost of the one gate minus that of the other, each at its own speak rate."),
    Column("speak rates", "Share of steps with an offer: of the gate with marginal, and with given_accept."),
)
Steps = Mapping[NeedTarget, Replay]


def judged_steps(scores: Scores) -> Replay:
    """The judged steps with the probe's own probabilities, where silence loses the offer of highest p_accept alone."""
    as_they_are = Calibration(need_fast=_AS_IT_IS, accept_fast=_AS_IT_IS, need_target=scores.need_meaning)
    steps = replay(scores, as_they_are, TEST)
    return dataclasses.replace(steps, y_best=steps.y_first)


def compare(steps_by_target: Steps, title: str, resamples: int) -> Section:
    """The paired differences at each cost ratio, and as the mean over the ratios.

    The steps with each meaning of need are in the same order; whole streams are resampled.
    """
    stream = next(iter(steps_by_target.values())).stream
    rows, every = [], []
    for ratio in RATIOS:
        gate = {target: _cost(gate_offers(steps, ratio), steps, ratio) for target, steps in steps_by_target.items()}
        alone = {target: _cost(_alone(steps, ratio), steps, ratio) for target, steps in steps_by_target.items()}
        differences = [gate[target] - alone[target] for target in get_args(NeedTarget)]
        differences.append(gate["given_accept"] - gate["marginal"])
        rates = [gate_offers(steps_by_target[target], ratio).mean() for target in get_args(NeedTarget)]
        every.append(np.stack(differences))
        rows.append((f"C_FN / C_FA = {ratio:g}", every[-1], ", ".join(f"{rate:.0%}" for rate in rates)))
    rows.append(("mean over the ratios", np.mean(every, axis=0), ""))
    return Section(
        title,
        tuple(
            Row(
                name,
                (
                    *(
                        show_estimate(mean_interval(difference, stream, resamples=resamples), sign=True)
                        for difference in differences
                    ),
                    rates,
                ),
                strong=not rates,
            )
            for name, differences, rates in rows
        ),
    )


def _alone(steps: Replay, ratio: float) -> Float64[np.ndarray, " steps"]:
    return most_accepted(steps.p_accept, float(gate_offers(steps, ratio).sum()))


def _cost(offers: Float64[np.ndarray, " steps"], steps: Replay, ratio: float) -> Float64[np.ndarray, " steps"]:
    return costs(offers, steps.y_first, steps, ratio).realised


def study(streams: Sequence[Stream], states: States | None, reading: StatesConfig) -> Iterator[tuple[str, Steps]]:
    """Yields the judged steps of the probe on words, and of that on words and states, with each meaning of need."""
    for name, own in ((WORDS, None), *(((STATES, states),) if states is not None else ())):
        yield (
            name,
            {
                target: judged_steps(score_probe(streams, own, FitConfig(need_target=target), reading))
                for target in get_args(NeedTarget)
            },
        )


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("source", None, "Folder with ProactiveBench's repository.")
    flags.DEFINE_string("workdir", None, "Folder for states.")
    flags.DEFINE_string("weights", "", "Weights of the frozen model; empty reads words alone.")
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of whole streams.", lower_bound=100)


def main() -> Iterable[Table]:
    """Compares the costs."""
    options = flags.FLAGS
    reading = StatesConfig(weights=options.weights)
    sections = []
    states: States | None = None
    for need in NEEDS:
        streams = proactivebench.load(options.source, need=need)
        if reading.weights and states is None:
            states = states_of(streams, reading, epath.Path(options.workdir) / "states")
        for name, steps in study(streams, states, reading):
            labels = steps["marginal"]
            among = [labels.y_need[labels.y_first == accepted].mean() for accepted in (1.0, 0.0)]
            title = (
                f"{name}, {need} need: {len(labels)} steps; needed at {among[0]:.0%} of those whose offer is accepted, "
                f"{among[1]:.0%} of the others"
            )
            sections.append(compare(steps, title, options.resamples))
    note = "Costs per step in units of C_FA; below 0 the first of two is cheaper. 95 % intervals over whole streams."
    return [Table("What the second signal is worth", "", _COLUMNS, tuple(sections), note)]
