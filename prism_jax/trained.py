"""A trained run, scored by its newest or best checkpoint and evaluated: what the mains `train` and `evaluate` share."""

from __future__ import annotations

from typing import Any

from etils import epath

from prism_jax.evaluation.outputs import evaluate_into
from prism_jax.policy.fast import score_streams
from prism_jax.provenance import as_facts, provenance
from prism_jax.scores import Scores
from prism_jax.training.run import Run, chosen, trained_params


def evaluate_run(run: Run, workdir: epath.Path) -> None:
    """Scores the calibration and test splits, fits temperatures, measures every policy, writes the report.

    Raises:
      ValueError, OSError: before anything is written, for a workdir without checkpoint or with broken metrics.
    """
    step, params = trained_params(run.model, run.config, workdir)
    print(f"checkpoint: {chosen(run.config, step)}")
    rows: list[dict[str, Any]] = []
    for split in ("calibration", "test"):
        rows += score_streams(
            run.model,
            params,
            run.template,
            getattr(run.splits, split),
            split=split,
            fold=run.config.data.fold,
            context=run.config.data.context,
            batch=run.config.training.batch,
        )
    made = as_facts(provenance())
    evaluate_into(
        workdir,
        Scores.from_rows(rows),
        run.config.decision,
        facts={"command": made.pop("command"), "checkpoint": chosen(run.config, step), **run.facts(), **made},
        keep_scores=True,
        metrics_path=workdir / "metrics.jsonl",
        streams=run.splits.test,
    )
