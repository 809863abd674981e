"""Draws the figure of the README: what decisions cost at every cost ratio, on the quickstart's test streams.

    make quickstart
    python docs/figures/costs_by_ratio.py runs/quickstart docs/figures/costs_by_ratio.svg

It reads scores.parquet and calibration.json of the run. The costs are realised ones, from the labels of the test
streams, with C_FA = 1 as in the tables of the run; where silence costs far more than offers, it leaves the frame.
"""

import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from prism_jax.decision import gate, metrics
from prism_jax.evaluation import splits
from prism_jax.evaluation.fits import read_calibration
from prism_jax.scores import read_scores

RATIOS = np.geomspace(0.25, 8, 41)
STYLES = {
    "always": ("always offers", "#8c8c8c", ":", 1.5),
    "never": ("never offers", "#8c8c8c", "--", 1.5),
    "static": ("p_accept alone", "#4c78a8", "-", 1.5),
    "dynamic": ("the gate, on p_need and p_accept", "#d62728", "-", 2.5),
    "bayes": ("the gate, on the true probabilities", "#000000", "-", 1.0),
}
"""Label, colour, line style and width of each policy."""


def costs_by_ratio(workdir):
    """Realised cost per step of each policy at every ratio, [policies][ratios]."""
    scores = read_scores(workdir / "scores.parquet")
    steps = splits.rows_of(scores, splits.TEST).steps()
    fits = read_calibration(workdir / "calibration.json")
    need, accept = (fits.calibrated(signal, "fast", steps) for signal in ("need", "accept"))

    def decide(policy, ratio):
        if policy == "bayes":
            return gate.intervene(steps.p_accept_true, steps.p_both_true, 1.0, ratio)
        return gate.decide(need, accept, 1.0, ratio, policy)

    def cost(policy, ratio):
        offers = decide(policy, ratio)
        return float(metrics.realised_cost(offers, steps.y_need, steps.y_accept, 1.0, ratio))

    return {policy: [cost(policy, ratio) for ratio in RATIOS] for policy in STYLES}


def draw(costs, path):
    """Writes the figure; the same costs give the same bytes."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "prism_jax", "font.family": "sans-serif", "font.size": 10}
    with plt.rc_context(settings):
        figure, axis = plt.subplots(figsize=(7, 3.4))
        for policy, (label, colour, line, width) in STYLES.items():
            axis.plot(RATIOS, costs[policy], line, color=colour, linewidth=width, label=label)
        axis.set_xscale("log", base=2)
        axis.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["¼", "½", "1", "2", "4", "8"])
        axis.set(xlabel="what a miss costs, in false alarms (C_FN / C_FA)", ylabel="cost per step (C_FA = 1)")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9)
        axis.set_ylim(0, 1.3 * max(costs["always"]))
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("error: arguments: found " + str(len(sys.argv) - 1) + ", expected WORKDIR and FILE.svg")
    draw(costs_by_ratio(pathlib.Path(sys.argv[1])), sys.argv[2])
