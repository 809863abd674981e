"""Training, and the probe."""

from faults.fault import Fault

TRAINING = (
    Fault(
        "burden-weights-swapped",
        "training/optimization/objective.py",
        "config.false_alarm * burden.false_alarm.mean() + config.missed * burden.missed.mean()",
        "config.missed * burden.false_alarm.mean() + config.false_alarm * burden.missed.mean()",
        "The weight of false alarms acts on missed help.",
        ("training/optimization/test_objective.py",),
        vital=True,
    ),
    Fault(
        "burden-of-unjudged-steps",
        "training/optimization/objective.py",
        "observed = batch.accept_weight * batch.logged * judged * self._inverse(propensity)",
        "observed = batch.accept_weight * batch.logged * self._inverse(propensity)",
        "Steps without a need label count as steps without need in the burden.",
        ("training/optimization/test_objective.py", "training/test_updates.py"),
        vital=True,
    ),
    Fault(
        "given-accept-without-acceptance",
        "training/optimization/objective.py",
        "batch.logged * self._inverse(propensity) * batch.y_accept",
        "batch.logged * self._inverse(propensity)",
        "Need given acceptance is learned from refused offers as well.",
        ("training/optimization/test_need_target.py",),
        vital=True,
    ),
    Fault(
        "gate-width-grows",
        "training/optimization/objective.py",
        "(1 - share) * jnp.log(self.loss.width_start) + share * jnp.log(self.loss.width_end)",
        "share * jnp.log(self.loss.width_start) + (1 - share) * jnp.log(self.loss.width_end)",
        "The soft gate becomes softer while training goes on.",
        ("training/optimization/test_objective.py", "training/optimization/test_shares.py"),
        vital=True,
    ),
    Fault(
        "digests-of-the-score-only",
        "training/checkpoints/checkpoint.py",
        "if not check_digests(path):",
        'if not check_digests(path, only="metrics/metrics"):',
        "Damaged weights are restored without a word.",
        ("training/checkpoints/test_digests.py",),
    ),
    Fault(
        "filling-rows-have-labels",
        "training/input_pipeline.py",
        "jax.tree.map(np.zeros_like, row)._replace(propensity",
        "row._replace(propensity",
        "Rows that fill a bucket repeat the labels of its first row.",
        ("training/test_buckets.py",),
        vital=True,
    ),
    Fault(
        "validation-filled-with-labels",
        "training/loop.py",
        "need_weight=np.zeros_like(rows[0].need_weight), accept_weight=",
        "need_weight=rows[0].need_weight, accept_weight=",
        "The validation loss counts the first row of its last batch several times.",
        ("training/checkpoints/test_checkpoint.py", "training/test_interruption.py", "training/test_loop.py"),
        vital=True,
    ),
)

PROBE = (
    Fault(
        "nested-fit-sees-its-stream",
        "probe/fitting.py",
        "[seen for seen in ordered if seen.words.stream.id not in inside]",
        "list(ordered)",
        "The probe's maps are fitted on predictions for streams that it has seen.",
        ("probe/test_fitting.py",),
        vital=True,
    ),
)
