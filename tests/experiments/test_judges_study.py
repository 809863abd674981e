"""The study of judges reads an offer as a rejected silence, and compares nobody with their own vote."""

import dataclasses

import numpy as np
from test_text_calibrator_study import MODELS, RECORDINGS, STREAMS

from prism_jax.experiments.judges import acts, annotators_table
from prism_jax.experiments.text_calibrator import match
from prism_jax.judges.ballots import Item, human_ballots
from prism_jax.streams.edit import map_steps


def test_an_offer_is_a_rejected_silence():
    rows = match(STREAMS, RECORDINGS)
    found = acts(rows, MODELS)
    assert len(found.items) == len(rows) / len(MODELS) and all(item.silence for item in found.items)
    assert np.array_equal(np.unique(found.verdicts, axis=0), [[0, 0, 0, 1]]), "only d is silent"
    fewer = acts([row for row in rows if (row.model, row.step.event) != ("b", 3)], ("b", "d"))
    missing = fewer.verdicts[fewer.items.index(Item("s0", 3, silence=True))]
    assert np.isnan(missing[0]) and missing[1] == 1


def test_an_annotator_is_compared_with_the_others_only():
    """The first two agree and the third contradicts them; with their own votes, each would share the majority."""

    def vote(step):
        even = step.event % 2 == 0
        return dataclasses.replace(step, votes=(even, even, not even))

    streams = [map_steps(stream, vote) for stream in STREAMS]
    (table,) = annotators_table(human_ballots(streams), resamples=50)
    agreement = {(section.title, row.name): row.cells for section in table.sections for row in section.rows}
    expected = [("Silences", "annotator 3 / all but annotator 3")]
    assert list(agreement) == expected, "the others of 1 and of 2 are always tied"
    (cells,) = agreement.values()
    assert cells[0] == str(10 * len(STREAMS)) and cells[3].startswith("0.0")
