import dataclasses

from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.summary import Summary, summarise

EVENTS = (Event(time=0.0, text="a"), Event(time=1.0, text="b"), Event(time=2.0, text="c"))
OFFERS = (Candidate(text="x", y_accept=1.0), Candidate(text="y", y_accept=0.0), Candidate(text="z"))
STEPS = (Step(event=0, y_need=1.0, votes=(True, False), candidates=OFFERS), Step(event=2))
STREAMS = [
    Stream(id="w", domain="writing", events=EVENTS, steps=STEPS),
    Stream(id="c", domain="coding", events=EVENTS[:1], steps=(Step(event=0, y_need=0.25),)),
]


def test_everything_is_counted_once_per_domain_and_over_all():
    summaries = summarise(STREAMS)
    assert list(summaries) == ["coding", "writing", "all"]
    labels = {"need_labels": 1, "needed": 1.0, "accept_labels": 2, "accepted": 1.0, "silence_labels": 1}
    assert summaries["writing"] == Summary(streams=1, events=3, steps=2, candidates=4, **labels)
    assert summaries["writing"].judgements == 3
    for field in dataclasses.fields(Summary):
        parts = [getattr(summaries[domain], field.name) for domain in ("coding", "writing")]
        assert getattr(summaries["all"], field.name) == sum(parts)


def test_the_line_for_the_terminal():
    assert str(summarise([])["all"]).startswith("0 streams, 0 events, 0 steps")
    assert str(summarise(STREAMS)["all"]) == (
        "2 streams, 4 events, 3 steps, 5 candidates; 3 judgements: 2 of offers (1 accepted), 1 of silence; "
        "help needed at 1.25 of 2 judged steps"
    )
