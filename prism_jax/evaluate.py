"""Calibrates and evaluates a trained run again, without training: `python -m prism_jax.evaluate --workdir=DIR`.

Reads config.json, tokenizer.json and the newest checkpoint; writes scores.parquet, calibration.json, evaluation.json
and report.html, and prints the tables.
"""

from __future__ import annotations

from typing import Any

from absl import flags
from etils import epath

from prism_jax import command
from prism_jax.evaluation import protocol, report, tables
from prism_jax.policy.fast import score_streams
from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.scores import Scores, write_scores
from prism_jax.training.run import Run, open_run, trained_params
from prism_jax.training.workdir import load_config, provenance, write_json


def evaluate_run(run: Run, workdir: epath.Path) -> None:
    """Scores the calibration and test splits, fits temperatures, measures every policy, writes the report."""
    step, params = trained_params(run.model, run.config.training, workdir)
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
    scores = Scores.from_rows(rows)
    calibration = protocol.calibrate(scores)
    result = protocol.evaluate(scores, calibration, run.config.decision)
    write_scores(workdir / "scores.parquet", scores)
    write_json(workdir / "calibration.json", calibration.to_dict())
    write_json(workdir / "evaluation.json", result.to_dict())
    made = provenance()
    facts = {
        "command": made["command"],
        "checkpoint": f"step {step}",
        **run.facts(),
        "versions": ", ".join(f"{name} {version}" for name, version in made["packages"].items()),
        "commit": made["commit"] or "none",
    }
    report.write_report(
        workdir / "report.html",
        result,
        scores,
        calibration,
        run.config.decision,
        metrics_path=workdir / "metrics.jsonl",
        streams=run.splits.test,
        facts=facts,
    )
    tables.print_tables(result)
    print(f"report: {workdir / 'report.html'}")


def main() -> None:
    """Runs what the flags say."""
    workdir = epath.Path(flags.FLAGS.workdir)
    config = load_config(workdir)
    evaluate_run(open_run(config, Tokenizer.load(workdir / "tokenizer.json")), workdir)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "Folder of a run that trained.")
    flags.mark_flags_as_required(["workdir"])
    command.start(main)
