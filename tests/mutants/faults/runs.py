"""Printed tables, runs and studies."""

from faults.fault import Fault

TABLES = (
    Fault(
        "complements-only-from-above",
        "../studies/audit_tables/identities.py",
        "return low + other_low <= 1 <= high + other_high",
        "return low + other_low <= 1",
        "Precision and false alarm that add up to less than 100 % pass.",
        ("audit/test_paper.py", "audit/test_clean.py"),
    ),
    Fault(
        "second-signal-columns-swapped",
        "report/tables.py",
        "for value in (row.gate, row.accept_alone)",
        "for value in (row.accept_alone, row.gate)",
        "The report prints the costs of the gate and of its rival under each other's heading.",
        ("evaluation/test_second_signal.py", "report/test_tables.py", "report/test_report.py"),
        vital=True,
    ),
    Fault(
        "timeline-silence-by-its-candidate",
        "report/timeline.py",
        "bool(trace.decision[row]), accept, best, point",
        "bool(trace.decision[row]), accept, accept, point",
        "The timeline shows another cost than the tables.",
        ("report/test_timeline.py", "evaluation/test_slow_candidates.py"),
        vital=True,
    ),
)

RUNS = (
    Fault(
        "scores-of-two-models-in-a-folder",
        "runs/many_streams.py",
        "if key not in saved or key not in current or saved[key] != current[key]:",
        'if not key.startswith("model") and saved.get(key) != current.get(key):',
        "A run that resumes with another model mixes the scores of both.",
        ("commands/test_score_command.py",),
        vital=True,
    ),
    Fault(
        "changed-shard-counts-as-finished",
        "runs/many_streams.py",
        'problem = "" if written[path.name] == found[path.name] else',
        'problem = "" if written[path.name] else',
        "Numbers that were changed in a file of scores stay when scoring resumes.",
        ("commands/test_score_command.py",),
    ),
    Fault(
        "log-gate-with-swapped-costs",
        "evaluation/answers/statistics.py",
        "intervene(predictions[name], predictions[name], *self.costs)",
        "intervene(predictions[name], predictions[name], *self.costs[::-1])",
        "The gate on a user's own log decides at the inverse cost ratio.",
        ("evaluation/answers/test_acceptance_log.py",),
        vital=True,
    ),
    Fault(
        "own-score-fitted-on-its-fold",
        "evaluation/answers/log_scores.py",
        ".scored(score, fold)[best]",
        ".scored(score, 0 * fold)[best]",
        "The map of a user's score was fitted on the people that it is measured on.",
        ("evaluation/answers/test_acceptance_log.py",),
        vital=True,
    ),
    Fault(
        "forgets-only-named-records",
        "commands/state.py",
        "files = files_of_records(store, records, gone)",
        "files = list(records)",
        "Records that the store knows keep the deleted person.",
        ("commands/test_state_command.py",),
    ),
    Fault(
        "answers-of-silent-rows",
        "evaluation/answers/log_scores.py",
        '"logged": log.logged[rows], "propensity": log.propensity[rows]}',
        '"propensity": log.propensity[rows]}',
        "A scores file does not say which offers were made.",
        ("evaluation/answers/test_acceptance_log.py", "commands/test_unshown_offers.py"),
        vital=True,
    ),
    Fault(
        "export-for-another-need",
        "runs/export.py",
        "calibration_of(path, config.loss.need_target)",
        "calibration_of(path, read_calibration(path).need_target)",
        "A model is exported with a calibration of another meaning of need.",
        ("test_export.py", "test_untrained.py"),
        vital=True,
    ),
)

EXPERIMENTS = (
    Fault(
        "baselines-see-labels-of-test-streams",
        "experiments/field/material.py",
        "Fold(number, train, [without_answers(stream) for stream in test])",
        "Fold(number, train, test)",
        "A baseline of the field's table could read the labels that it is measured on.",
        ("experiments/test_field.py",),
        vital=True,
    ),
    Fault(
        "few-labels-of-the-tested-half",
        "experiments/field/measures.py",
        "np.flatnonzero(table.split == CALIBRATION))[:labels]",
        "np.flatnonzero(table.split == TEST))[:labels]",
        "A new source was calibrated on the labels that measure it.",
        ("experiments/test_field.py",),
        vital=True,
    ),
)
