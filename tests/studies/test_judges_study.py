"""The study of judges reads an offer as a rejected silence, and compares nobody with their own vote."""

import dataclasses

import numpy as np

from prism_jax.labelling.judges.ballots import Item, human_ballots
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_steps
from prism_jax.streams.published.recorded import ModelAnswer, Recording
from studies.judges import acts, annotators_table, match

MODELS = ("a", "b", "c", "d")


def judged(number):
    """A judged stream whose offers say whether they are accepted; the third event's text occurs twice."""
    rng = np.random.default_rng(number)
    events = tuple(Event(time=float(i), text=f"s{number} event {i if i != 2 else 1}") for i in range(10))
    steps = tuple(
        Step(
            event=i,
            y_need=float(rng.random() < 0.5),
            candidates=tuple(
                Candidate(text=f"{word} s{number} {i}", y_accept=float(word == "good")) for word in ("bad", "good")
            ),
        )
        for i in range(10)
    )
    return Stream(id=f"s{number}", events=events, steps=steps)


def recorded(stream):
    """Every model's purpose tells the need, except that of `d`, which is silent."""
    answers = []
    for step in stream.steps:
        for model in MODELS:
            words = {"Purpose": "stuck" if step.y_need else "fluent", "Thoughts": None, "Response": None}
            offer = None if model == "d" else "Help."
            answers.append(ModelAnswer(model, step.event, {**words, "Proactive Task": offer}))
    return Recording(dataclasses.replace(stream, steps=()), tuple(answers))


STREAMS = [judged(number) for number in range(10)]
RECORDINGS = [recorded(stream) for stream in STREAMS]


def test_answers_are_paired_by_an_event_that_occurs_once_in_both_versions():
    other = dataclasses.replace(RECORDINGS[0].stream, events=RECORDINGS[0].stream.events[:-1])
    shorter = Recording(other, tuple(answer for answer in RECORDINGS[0].answers if answer.event < 9))
    unknown = Recording(dataclasses.replace(other, id="another"), shorter.answers)
    found = match(STREAMS, [shorter, unknown])
    expected = {(model, i) for model in MODELS for i in range(9) if i not in (1, 2)}
    assert {(row.model, row.step.event) for row in found} == expected
    assert {row.stream for row in found} == {"s0"}
    assert {row.model for row in found if not row.spoke} == {"d"}


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
