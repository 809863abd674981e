"""Calibrates what serves.

    python -m prism_jax calibrate --labels=FILE --out=gate.json --c_fa=1 --c_fn=2 ...
        --model=DIR --engine=llamacpp:URL             # an engine that serves an export
        --decisions=URL --decision_model=NAME         # a decision model, by `/v1/decisions`
        --model=DIR                                   # an export, read here
    python -m prism_jax calibrate --labels=FILE --check=gate.json ...   # whether the model still answers so, for CI

It asks at every step of FILE, streams with labels (docs/training.md) or decision records with outcomes and texts, fits
a map for each signal, and writes gate.json, which `Gate.load`, the agent and `serve` read. It prints what that is worth
out of fold: calibration, decisions and their cost before and after (docs/decision_models.md). Few labels move little,
and none leave the probabilities as they are: those of an export, by its own calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from absl import flags

from prism_jax.agent.serving import DECISION_OPTIONS, define_asking_flags
from prism_jax.decision.calibration import CALIBRATORS, IDENTITY_ROWS, OF_SCORES
from prism_jax.decision.policies import DEPLOYABLE
from prism_jax.runtime import command, digests, distributed
from prism_jax.runtime.command import check_together, refuse_empty

_ASKING = {"engine": ("key", "deadline", "compare"), "decisions": ("key", "deadline", *DECISION_OPTIONS)}
"""Flags that say how each is asked."""
_TOGETHER = (
    "scores_out c_fa c_fn policy calibrator identity_rows with check: it with --out: the gate has its own",
    "decisions with engine: one of them",
    "model context expect_digest with decisions: it without",
)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "labels", None, "Streams with labels, or records with outcomes: a file, a folder or a glob.", required=True
    )
    flags.DEFINE_string("out", None, "gate.json to write.")
    flags.DEFINE_string(
        "check",
        None,
        "In place of --out, a gate.json: ask again on the labels that it was fitted on, and fail (exit status 1) if "
        "more decisions flip than between two askings then, or the cost rose.",
    )
    flags.DEFINE_string("scores_out", None, "Scores file to write, with the raw probabilities, .parquet or .jsonl.")
    flags.DEFINE_string("model", None, "Directory of an exported model, or workdir of a trained run.")
    define_asking_flags()
    flags.DEFINE_bool("compare", None, "With --engine: also read --model here, and say how far the engine is away.")
    flags.DEFINE_bool("redact", True, "With --decisions: cut personal data and secrets from what is sent.")
    flags.DEFINE_float(
        "c_fa", None, "C_FA, the cost of an offer that is not accepted; default: the export's, or 1.", 1e-6
    )
    flags.DEFINE_float(
        "c_fn", None, "C_FN, the cost of silence where help was missed; default: the export's, or 2.", 0.0
    )
    flags.DEFINE_enum("policy", None, DEPLOYABLE, "The rule that decides; default: the export's.")
    flags.DEFINE_enum("calibrator", None, CALIBRATORS, f"The kind of map; default: {OF_SCORES}.")
    flags.DEFINE_float(
        "identity_rows",
        None,
        f"What the probabilities so far count for, in labels; default: {IDENTITY_ROWS:g}.",
        1e-6,
        1e9,
    )
    flags.DEFINE_integer("context", None, "Most tokens up to the end of one decision.")
    distributed.define_cache_flag()
    digests.define_flag("--model")
    refuse_empty("labels", "out", "check", "scores_out", "model", "engine", "decisions")


def main() -> None:
    """Asks, fits, writes and prints."""
    options = flags.FLAGS.flag_values_dict()
    _check(options)
    from prism_jax.commands.calibrating import calibrate  # more than the flags need

    calibrate(options)


def _check(options: Mapping[str, Any]) -> None:
    """ValueError, naming the flag, unless exactly one thing is asked, with flags that go with it."""
    engine, decisions = (options[name] is not None for name in ("engine", "decisions"))
    if (options["out"] is None) == (options["check"] is None):
        found = "none" if options["out"] is None else "it with --check"
        raise ValueError(f"--out: found {found}, expected one of --out and --check")
    check_together(*_TOGETHER, options=options)
    for name in ("decision_model",) if decisions else ("model",):
        if options[name] is None:
            raise ValueError(f"--{name}: found none, expected it {'with' if decisions else 'without'} --decisions")
    kind = "engine" if engine else "decisions" if decisions else None
    allowed = _ASKING.get(kind or "", ())
    for name in sorted({name for names in _ASKING.values() for name in names} - set(allowed)):
        if options[name] is not None:
            raise ValueError(f"--{name}: found it without what it is for, expected it with --engine or --decisions")


if __name__ == "__main__":
    define_flags()
    command.start(main)
