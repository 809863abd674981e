"""Probabilities at answer slots: of a pretrained model as it is, or of a decision model (docs/decision_models.md)."""

from __future__ import annotations

import functools
from typing import Any

from prism_jax.agent.decision_reader import DecisionReader, Questions, Slots
from prism_jax.agent.fitted import read_labelled
from prism_jax.agent.signals import probabilities
from prism_jax.experiments.field.asked import Answers, Probabilities, sampled, say_missing, scores_of
from prism_jax.experiments.field.interface import Baseline, Fold, Run
from prism_jax.remote.jobs import open_clients
from prism_jax.scores import Scores


def score_zero_shot(fold: Fold, run: Run) -> Scores:
    """What a pretrained model says at the default template's slots, without training, at the steps of the sample."""
    from prism_jax.student import weights
    from prism_jax.student.prompting.template import Template
    from prism_jax.student.prompting.tokenizer import Tokenizer
    from prism_jax.student.scoring.fast import score_streams
    from prism_jax.student.scoring.student import Student
    from prism_jax.training.run_config import RunConfig

    assert run.weights is not None, "the registry says what a baseline needs"
    config, loaded = RunConfig(), weights.load(run.weights, "float32")
    student = Student(loaded.model, loaded.params, Template(Tokenizer.load(run.weights), config.prompt))
    samples = sampled(fold.test, run)
    numbers = {stream.id: of_stream for stream, of_stream in samples}
    packing: dict[str, Any] = {"split": "test", "fold": fold.number, "context": config.packing.context}
    rows = score_streams(student, [stream for stream, _ in samples], batch=1, rounded=True, **packing)
    return Scores.from_rows(row | {"step": numbers[row["stream"]][row["step"]]} for row in rows)


def score_decisions(fold: Fold, run: Run, *, label: str, form: str, questions: Questions | Slots) -> Scores:
    """What a decision model answers, asked in a form of `prism_jax.remote.decisions.FORMS`.

    A step that it refuses is one without an answer; see `prism_jax.experiments.field.asked`. Raises RuntimeError where
    there is no answer at all, and EndpointError where the server refuses every request.
    """
    assert run.endpoint is not None, "the registry says what a baseline needs"
    samples = sampled(fold.test, run)
    with open_clients(run.remote, {"endpoint": run.endpoint}) as (clients, _):
        reader = DecisionReader(clients["endpoint"], questions, deadline=run.endpoint.patience, form=form)
        reader.ends = "always"
        try:
            found = read_labelled(reader, [sample.stream for sample in samples])
        finally:
            reader.close()
    if not found.log_odds:
        raise RuntimeError(f"{label}: found no answer at any step, expected some: {next(iter(found.unanswered))}")
    answers: Answers[Probabilities] = {}
    for stream, numbers in samples:
        for place, number in enumerate(numbers):
            z = found.log_odds.get((stream.id, place))
            answers[stream.id, number] = None if z is None else _probabilities(z, stream.id)
    say_missing(label, len(answers), found.unanswered)
    return scores_of(fold, run, answers)


def _probabilities(z: tuple[float, ...], stream: str) -> Probabilities:
    need, *accept = probabilities(z, stream)
    return Probabilities(need, tuple(accept))


def _decisions(name: str, label: str, form: str, questions: Questions | Slots) -> Baseline:
    score = functools.partial(score_decisions, label=label, form=form, questions=questions)
    return Baseline(name, label, score, needs=("endpoint",), fitted=False)


ZERO_SHOT = Baseline("zero_shot", "zero-shot slots", score_zero_shot, needs=("weights",), fitted=False)
DECISIONS = _decisions("decisions", "decision model", "decisions", Questions())
SYSTEM_ONE = _decisions("systemone", "decision model, systemone", "systemone", Questions())
SERVED = _decisions("served", "slots of a server of ours", "decisions", Slots())
