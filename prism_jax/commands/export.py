"""Exports a trained run as a plain causal language model.

    python -m prism_jax export --model=RUN --workdir=DIR
    python -m prism_jax export --weights=MODEL.gguf --workdir=DIR

DIR holds what transformers and serving engines load (config.json, safetensors, tokenizer, chat template) and
prism.json, which says where the two probabilities are read and how the gate decides (docs/export.md). RUN may
be of a probe, too, for the agent (docs/probe.md). With `--weights=PATH`, a GGUF file or Hugging Face directory, in
place of a run it is a language model as it is, to be calibrated where it serves (docs/decision_models.md).
"""

from __future__ import annotations

from absl import flags
from etils import epath

from prism_jax.runtime import command
from prism_jax.runtime.command import check_together, refuse_empty


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("model", None, "Workdir of a run that was trained and evaluated.")
    flags.DEFINE_string("weights", None, "In place of a run: a language model that was not trained here.")
    flags.DEFINE_string("workdir", None, "Folder to create.")
    flags.DEFINE_string(
        "calibration",
        None,
        "With --model: calibration.json of `evaluate --scores` of this student, instead of the run's own.",
    )
    flags.DEFINE_enum(
        "dtype",
        None,
        ["float32", "bfloat16", "float16"],
        "Dtype of the tensors; by default the parameters' own; with --weights float32.",
    )
    flags.DEFINE_bool("adapter", False, "Write the adapters alone, as PEFT loads them, instead of merging them.")
    flags.mark_flag_as_required("workdir")
    flags.mark_flags_as_mutual_exclusive(["model", "weights"], required=True)
    refuse_empty("workdir", "model", "weights", "calibration")


def main() -> int | None:
    """Does what the flags say. The exit status is 3 where the trained checkpoint is damaged and an older one read."""
    # Neither help nor a refused flag needs a language model.
    from prism_jax.runs.export import export_base, export_run
    from prism_jax.runs.probe_export import export_probe, is_probe
    from prism_jax.training.run import NOT_TRAINED

    output = epath.Path(flags.FLAGS.workdir)
    if flags.FLAGS.weights is not None:
        check_together("adapter calibration with weights: it with the workdir of a run")
        print(f"exported: {output}, {export_base(flags.FLAGS.weights, output, dtype=flags.FLAGS.dtype)}")
        return None
    if is_probe(flags.FLAGS.model):
        for flag in ("dtype", "adapter", "calibration"):
            if flags.FLAGS[flag].value:
                raise ValueError(f"--{flag}: found it with the workdir of a probe, expected it with that of a student")
        print(f"exported: {output}, {export_probe(flags.FLAGS.model, output)}")
        return None
    checkpoint, is_trained = export_run(
        flags.FLAGS.model,
        output,
        calibration=flags.FLAGS.calibration,
        dtype=flags.FLAGS.dtype,
        adapter=flags.FLAGS.adapter,
    )
    print(f"exported: {output}, checkpoint: {checkpoint}")
    return None if is_trained else NOT_TRAINED


if __name__ == "__main__":
    define_flags()
    command.start(main)
