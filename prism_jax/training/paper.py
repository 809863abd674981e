"""The paper's recipe, which the configs of Qwen3 share: §4.1 and the appendix "Training configuration".

As there: AdamW (`training.learning_rate` 1e-5, `training.warmup` 0.1, cosine to 0, `training.epochs` 3), 4 rows per
update of one decision each, `packing.context` 4096, no loss on the prompt, `pathway.count` 1,800. `max_samples: 100000`
limits nothing. A config's docstring lists its own departures; these are shared:

- `pathway.stratify`: rows are the best within each pair of labels, not overall, so that curation does not change how
  often help is needed. `pathway.score`: the penalty on acceptance counts wherever it was observed; Eq. 2 (`paper`) has
  it where the teacher sees need.
- `pathway.slow`: 3 in 10 steps train a slow branch. The paper deploys a slow pass and states neither a share nor how it
  was trained.
- The template is the model's own with an empty thinking block, and a longer stream keeps its newest events; the paper
  names the template `qwen` and a `cutoff_len`. Signals are read at slots, whose decision losses stand in place of the
  answers' tokens. `loss.burden` 0.1 and the other weights, which the paper does not state, are those of docs/maths.md;
  `loss.estimator` snips normalises the paper's inverse propensities, which are 1 for rows that judges labelled.
- `training.weight_decay` 0.01, `training.b2` 0.999, `training.clip` 1: the paper states none. `decision.c_fa` 1 and
  `decision.c_fn` 2: the paper sweeps them. `decision.margin` 0.1 and `decision.trigger` margin are the paper's.
"""

from __future__ import annotations

from typing import Any

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.streams.sources import DataConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.training.pathway_config import PathwayConfig
from prism_jax.training.run_config import MeshConfig, PackingConfig, RunConfig, TrainingConfig

SOURCE = "data/teacher_labelled.jsonl"
"""Where the recipe looks for its streams; they are not part of the project (docs/training.md says how to make them)."""


def paper_run(student: StudentConfig, *, mesh: MeshConfig | None = None, **training: Any) -> RunConfig:
    """A run of `rdc_sft` on teacher-labelled streams, with the paper's curation, schedule and context.

    Curation keeps 1,800 decisions. Each is a row of at most 4096 tokens, so that 3 epochs are 5,400 rows: 1,350 updates
    of 4 rows. `training` sets the fields of `TrainingConfig` that the schedule leaves open, such as start, batch and
    master; without a mesh there is one device.
    """
    schedule: dict[str, Any] = {"learning_rate": 1e-5, "warmup": 0.1, "final_rate": 0.0, "steps": 0, "epochs": 3.0}
    return RunConfig(
        data=DataConfig(name="jsonl", source=SOURCE),
        packing=PackingConfig(context=4096, max_decisions=1),
        student=student,
        mesh=mesh or MeshConfig(),
        pathway=PathwayConfig(name="rdc_sft", count=1800, slow=0.3),
        decision=OperatingPoint(trigger="margin"),
        training=TrainingConfig(**schedule, weight_decay=0.01, b2=0.999, **training),
    )
