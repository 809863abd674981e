"""Answers to whole streams: those of an agent that watched them, whatever was asked before."""

import asyncio

import numpy as np
import pytest
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.asking import AskingReader, NoAnswerError
from prism_jax.agent.live import Live, LiveConfig
from prism_jax.agent.reader import AsksAgain, FastReading
from prism_jax.agent.service.answering import Answering
from prism_jax.agent.service.form import Asked
from prism_jax.streams import Candidate, Event
from prism_jax.student.scoring.student import Student

OFFERS = (Candidate(text="Look at the failing test?"), Candidate(), Candidate(text="Write a summary?"))
MANY = tuple(Candidate(text=f"Write test {number}?") for number in range(6))
"""More than are read at once."""
ROOM = 64


@pytest.fixture(scope="module")
def reader(model, draw_params, template):
    """Makes readers of one student, whose pool holds few streams."""
    student = Student(model, draw_params(model), template)

    def make():
        config = LiveConfig(context=180, memory=1 << 17, batches=(4,), longest=64, offers=ROOM)
        return Live(student, has_slow_pass=False, writes_responses=False, config=config)

    return make


def events(stream, count):
    return tuple(Event(time=40.0 * number, text=f"{stream} {number}: the parser fails") for number in range(count))


def close(found, wanted):
    np.testing.assert_allclose(found.p_need, wanted.p_need, rtol=0, atol=1e-6)
    for offer, p in wanted.p_accept.items():
        np.testing.assert_allclose(found.p_accept[offer], p, rtol=0, atol=1e-6)


def test_probabilities_are_those_of_an_agent(reader):
    assert isinstance(reader(), AsksAgain)
    answering = Answering(reader(), exported(slow=False))
    agent, other = (Agent(reader(), exported(slow=False)) for _ in range(2))
    for count in range(1, 9):
        for stream in "ab":
            own, name, offers = events(stream, count), f"{stream} of {count}", MANY if count == 2 else OFFERS
            (found,) = answering.answer([Asked(own, offers)])
            for event in own[:-1]:
                other.observe(name, event)
            signals = other.observe(name, own[-1], offers).fast
            other.reader.forget(name)
            assert found.p_need == pytest.approx(signals.need, abs=1e-6)
            assert list(found.p_accept) == list(offers)
            np.testing.assert_allclose(list(found.p_accept.values()), signals.accept, atol=1e-6)
        # one agent that watches, with the same offer at each event
        (constant,) = answering.answer([Asked(events("a", count), (Candidate(),))])
        assert constant.p_need == pytest.approx(agent.observe("a", events("a", count)[-1]).fast.need, abs=1e-6)


def test_an_answer_depends_on_its_request_alone(reader):
    """Streams that outgrow context and pool, come back shorter, come twice at once, and are let go."""
    rng = np.random.default_rng(0)
    busy = Answering(reader(), exported(slow=False), streams=3)
    for _ in range(12):
        drawn = [(rng.integers(5), int(rng.integers(1, 14)), rng.integers(1, 4)) for _ in range(rng.integers(1, 5))]
        asked = [Asked(events("abcde"[place], count), OFFERS[:offers]) for place, count, offers in drawn]
        for item, found in zip(asked, busy.answer(asked), strict=True):
            (wanted,) = Answering(reader(), exported(slow=False)).answer([item])
            close(found, wanted)
            assert found.tokens == wanted.tokens == found.cached + found.kept + (wanted.tokens - wanted.kept)


def test_tokens_are_those_that_were_read_and_kept(reader):
    answering, live = Answering(reader(), exported(slow=False)), reader()
    first, second = (Asked(events("a", count), OFFERS[:1]) for count in (3, 4))
    (cold,), (warm,), (again,) = (answering.answer([item]) for item in (first, second, second))
    trunks = []
    for event in events("a", 4):
        live.observe([("a", event, OFFERS[:1])])
        trunks.append(len(live._engine.tokens("a")))
    assert (cold.cached, cold.kept) == (0, trunks[2])
    assert (warm.cached, warm.kept) == (trunks[2], trunks[3] - trunks[2])
    assert (again.cached, again.kept) == (trunks[3], 0)
    assert again.tokens == warm.tokens > trunks[3]
    (other,) = answering.answer([second._replace(caller="another")])
    assert other.cached == 0  # what one caller sent says nothing to another


def test_texts_that_do_not_fit_are_errors_of_their_request_alone(reader):
    answering = Answering(reader(), exported(slow=False))
    fine = Asked(events("a", 2), OFFERS)
    long = Asked((*events("b", 2), Event(time=99.0, text="word " * 400)), OFFERS)
    offers = Asked(events("c", 2), (Candidate(text="word " * 400),))
    good, event, offer, again = answering.answer([fine, long, offers, fine._replace(events=events("d", 2))])
    assert str(event).startswith("input[2]: found an event of ") and "expected at most" in str(event)
    assert str(offer).startswith("found offers of ") and "expected at most" in str(offer)
    close(answering.answer([fine])[0], good)
    assert 0 < again.p_need < 1


def test_a_failure_that_nobody_foresaw_keeps_no_stream(reader, monkeypatch):
    live = reader()
    answering = Answering(live, exported(slow=False))
    answering.answer([Asked(events("a", 2), OFFERS)])

    def fail(items):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(live, "ask", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            answering.answer([Asked(events(name, 3), OFFERS) for name in "ab"])
    assert len(live._engine) == len(live._newest) == 0
    assert 0 < answering.answer([Asked(events("a", 3), OFFERS)])[0].p_need < 1
    with monkeypatch.context() as patch:
        slots = live.ask
        patch.setattr(live, "ask", lambda items: [one._replace(z_need=np.nan) for one in slots(items)])
        (found,) = answering.answer([Asked(events("a", 4), OFFERS)])
    assert isinstance(found, ArithmeticError) and "not a number" in str(found)


def test_a_reader_that_cannot_be_asked_again_reads_anew():
    reader = FakeReader(slow=False, responses=False)
    answering, agent = Answering(reader, exported(slow=False)), Agent(FakeReader(slow=False), exported(slow=False))
    own = events("a", 3)
    found, same = answering.answer([Asked(own, OFFERS)] * 2)
    for event in own[:-1]:
        agent.observe("s", event)
    signals = agent.observe("s", own[-1], OFFERS).fast
    assert found == same and list(found.p_accept.values()) == list(signals.accept) and found.p_need == signals.need
    assert found.tokens == sum(len(event.text.split()) for event in own) and not reader.trunks


def test_a_reader_that_fails_keeps_nothing_of_the_request(monkeypatch):
    reader = FakeReader(slow=False)
    answering, read = Answering(reader, exported(slow=False)), reader.observe
    monkeypatch.setattr(reader, "observe", lambda items: (read(items), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        answering.answer([Asked(events("a", 1), OFFERS)])
    assert not reader.trunks


class Asking(AskingReader):
    """A model that is served elsewhere, and answers that which it is asked first."""

    sent = "nothing"

    def __init__(self, answers=1):
        super().__init__(deadline=5.0)
        self.followed, self.asked, self.answers, self.now, self.most = [], 0, answers, 0, 0

    def follow(self, items):
        for stream, event, _ in items:
            if event.text == "long":
                raise ValueError(f"stream {stream!r}: found a long event")
        self.followed += [event.text for _, event, _ in items]

    def forget(self, stream):
        self.followed.append("forgotten")

    def history(self, stream):
        return ""

    async def _answer(self, stream, candidates):
        self.asked += 1
        if self.asked > self.answers:
            raise NoAnswerError("it is away")
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return FastReading(0.0, (0.0,) * len(candidates), 7)


def test_a_model_that_is_served_elsewhere_is_asked_once_per_request_and_may_be_away():
    reader, request = Asking(), Asked(events("s", 3), OFFERS[:1])
    answering = Answering(reader, exported(slow=False))
    (found,), (lost,) = answering.answer([request]), answering.answer([request])
    assert reader.followed == [*(event.text for event in request.events), "forgotten"] * 2
    assert (found.tokens, reader.asked) == (7, 2)
    assert (lost.status, lost.message) == (503, "the model gave no answer: it is away")
    reader.close()


def test_requests_that_came_together_ask_a_model_elsewhere_at_once():
    reader, fine = Asking(answers=9), Asked(events("s", 3), OFFERS[:1])
    long = fine._replace(events=(Event(time=0.0, text="short"), Event(time=1.0, text="long")))
    answers = Answering(reader, exported(slow=False)).answer([fine] * 3)
    assert (reader.asked, reader.most) == (3, 3) and answers[0] == answers[2]
    one, error, two = Answering(reader, exported(slow=False)).answer([fine, long, fine])
    assert one == two == answers[0] and str(error) == "input[1]: found a long event"
    reader.close()
