"""The text calibrator (`prism_jax.labelling.teacher.text_fit`) on the texts of the offers themselves."""

from __future__ import annotations

from prism_jax.experiments.field.interface import Baseline, Fold, Run, rows_of_streams
from prism_jax.labelling.teacher.text_calibrator import candidate_fields
from prism_jax.labelling.teacher.text_fit import accept_examples, fit_text_map
from prism_jax.scores import Scores


def score_offers(fold: Fold, run: Run) -> Scores:
    """Acceptance of the test streams' offers by their own words; an offer without any takes the rate."""
    fitted = fit_text_map(list(accept_examples(fold.train)), "accept")
    steps = (step for stream in fold.test for step in stream.steps)
    fields = [candidate_fields(step, offer) for step in steps for offer in step.candidates]
    known = iter(fitted([own for own in fields if own]).tolist())
    p = [next(known) if own else fitted.base_rate for own in fields]
    return Scores.from_rows(rows_of_streams(fold.test, None, p, split="test", fold=fold.number, calibrated=True))


OFFERS = Baseline(
    "offers",
    "words of the offer alone",
    score_offers,
    misfit=lambda source: "" if next(accept_examples(source.streams), None) else "no texts of offers",
)
