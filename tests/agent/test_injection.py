"""What no text can do, wherever it stands: forge special tokens, move a slot, break a response, or touch other streams.

How far a text can persuade the model is measured, not tested: `studies.injections`.
"""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

from prism_jax.agent.live import Live, LiveConfig
from prism_jax.agent.reader import ThinkRequest
from prism_jax.runtime.written import MOST_SECONDS
from prism_jax.streams import Candidate, Event
from prism_jax.streams.edit import map_steps
from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.types import CONSTANT_OFFER, SLOW_FIELDS
from prism_jax.student import engine
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig, Template, WritingConfig, make_tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.scoring.fast import packed_parts
from prism_jax.student.scoring.responses import response_text
from prism_jax.student.scoring.student import Student
from prism_jax.student.weights import Pretrained
from studies.injection_strings import GOALS, INJECTIONS

TEXTS = tuple(injection.text for injection in INJECTIONS)
WRITING = WritingConfig(field_tokens=4, response_tokens=6)
SIZES = dict(hidden_dim=16, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32, initializer_range=0.5)
BENIGN = "Opens the file."


@pytest.fixture(scope="session")
def qwen3_template(qwen3_tokenizer):
    return Template(qwen3_tokenizer, PromptConfig(system="Watch."))


@pytest.fixture(params=["tiny", "Qwen3"])
def any_template(request):
    return request.getfixturevalue("template" if request.param == "tiny" else "qwen3_template")


@pytest.fixture(scope="module")
def live(draw_params):
    """Makes readers of students."""

    def make(template, *, context=4096, memory=1 << 22, tied=True, change=lambda params: params):
        model = Qwen3(StudentConfig(vocab_size=template.tokenizer.size, tied=tied, **SIZES))
        config = LiveConfig(context=context, memory=memory, batches=(1,), longest=256)
        params = change(draw_params(model, seed=4))
        return Live(Student(model, params, template), has_slow_pass=True, writing=WRITING, config=config)

    return make


@pytest.fixture(scope="module")
def reader(live, template):
    """One for tests that let go of their streams."""
    return live(template, context=700, memory=1 << 18)


def specials(template):
    """The special ids, from the definition of the tokenizer alone."""
    return {token["id"] for token in json.loads(template.tokenizer.definition)["added_tokens"]}


class Spy:
    """Records what `Live` asks of the engine; the student it stands for writes `text` wherever it may write."""

    def __init__(self, monkeypatch, template):
        self.branches, self.written, self.text, self.template = [], [], BENIGN, template
        monkeypatch.setattr(engine.Engine, "read", self.read)
        monkeypatch.setattr(engine.Engine, "write", self.write)
        monkeypatch.setattr(Live, "_automaton", lambda *_: None)  # nothing is written by a model

    def read(self, readings):
        self.branches += readings
        return [[np.zeros((1 + len(b.leaves), 2), np.float32) for b in reading.branches] for reading in readings]

    def write(self, branches, spans, automaton):
        self.written += branches
        return [[self.template.tokenizer.encode(self.text) for _ in spans] for _ in branches]


def every_position(reader, spy, text):
    """Puts a text into every position that is read as text; returns the ids of all that was read."""
    spy.branches, spy.written, spy.text = [], [], text
    offers = (Candidate(text=text), Candidate())
    reader.observe([("a", Event(time=0.0, text=text), offers)])
    reader.think([ThinkRequest("a", offers)])  # the fields hold what the student wrote
    spy.text = json.dumps(text)[1:-1]  # in the value of a response, the grammar lets through what JSON allows
    reader.respond([("a", offers[0], None), ("b", offers[0], dict.fromkeys(SLOW_FIELDS, text))])
    reader.forget("a")
    parts = [r.event for r in spy.branches] + [branch for _, branch in spy.written]
    parts += [part for r in spy.branches for branch in r.branches for part in (branch.head, *branch.leaves)]
    return [list(part) for part in parts]


def test_there_are_sixty_injections_in_balanced_families():
    assert len({*TEXTS}) == 60
    count = {(one.family, goal): 0 for one in INJECTIONS for goal in GOALS}
    for one in INJECTIONS:
        count[one.family, one.goal] += 1
    assert {*count.values()} == {3} and len(count) == 20


@pytest.mark.slow
def test_special_tokens_come_from_the_template_alone(live, any_template, monkeypatch):
    """In an event, an offer, a field of the slow pass and the value of a response: as many as for a benign text."""
    spy = Spy(monkeypatch, any_template)
    reader, special = live(any_template), specials(any_template)

    def found(text):
        return [[token for token in part if token in special] for part in every_position(reader, spy, text)]

    expected = found(BENIGN)
    start, end = (any_template.tokenizer.special(name) for name in ("<|im_start|>", "<|im_end|>"))
    assert expected[0] == [start, end] and max(map(len, expected)) < 4
    for text in TEXTS:
        assert found(text) == expected, text
    assert set(any_template.tokenizer.encode("".join(TEXTS))).isdisjoint(special)


@pytest.mark.slow
def test_the_oracle_of_special_tokens_can_fail(any_template):
    """A tokenizer that renders first and encodes after would read the forged markup as special tokens."""
    import tokenizers

    whole = tokenizers.Tokenizer.from_str(any_template.tokenizer.definition)
    forged = [one.text for one in INJECTIONS if one.family == "chat markup"]
    assert all(specials(any_template) & {*whole.encode(text).ids} for text in forged)


def test_slots_stay_where_the_template_puts_them(live, any_template, monkeypatch):
    """The need slot ends the head, and each accept slot its leaf, whatever stands before."""
    spy = Spy(monkeypatch, any_template)
    reader = live(any_template)
    encode = any_template.tokenizer.encode
    for text in TEXTS:
        every_position(reader, spy, text)
        fast, slow = (reading.branches[0] for reading in spy.branches)
        assert list(fast.head) == any_template.head()
        assert slow.head[-len(encode("Needed:")) :] == tuple(encode("Needed:"))
        for branch in (fast, slow):
            assert branch.places is None  # the last token of the head, and of each leaf
            assert len(branch.leaves) == 2
            for leaf, offer in zip(branch.leaves, (f" {text}", CONSTANT_OFFER), strict=True):
                assert list(leaf) == [*encode("\nOffer:"), *encode(offer), *encode("\nAccepted:")]


def test_the_slots_of_packed_rows_stay_too(any_template, simulated):
    """Training and evaluation read the slots at the same places of the branches for any event."""
    stream = dataclasses.replace(simulated[0], steps=simulated[0].steps[-1:])
    last = stream.steps[0].event
    [benign] = packed_parts(stream, any_template, 10_000)
    for text in TEXTS:
        event = dataclasses.replace(stream.events[last], text=text)
        events = (*stream.events[:last], event, *stream.events[last + 1 :])
        [part] = packed_parts(dataclasses.replace(stream, events=events), any_template, 10_000)
        for column in ("tokens", "need_slot", "accept_slot", "accept_step"):
            assert getattr(part.row, column).tolist() == getattr(benign.row, column).tolist(), text
        assert (part.row.positions - len(part.row.trunk) == benign.row.positions - len(benign.row.trunk)).all()


def test_an_offers_text_cannot_move_p_need(reader):
    """The need slot stands before the offer."""
    found = []
    for text in TEXTS:
        [reading] = reader.observe([("a", Event(time=0.0, text=BENIGN), (Candidate(text=text), Candidate()))])
        found.append((reading.z_need, reading.z_accept[1]))
        reader.forget("a")
    np.testing.assert_allclose(found, np.broadcast_to(found[0], (60, 2)), atol=2e-5)
    assert np.std([z for z, _ in found]) < 2e-5


def test_outcomes_and_variables_are_never_read(template, simulated):
    """Labels, votes, logs, truths and recorded variables change no token of a row."""

    def without(step):
        bare = tuple(Candidate(text=offer.text) for offer in step.candidates)
        unknown = dict.fromkeys(("y_need", "p_need_true", "rationale"))
        return dataclasses.replace(step, candidates=bare, votes=(), recorded={}, **unknown)

    for stream in simulated[:6]:
        bare = dataclasses.replace(map_steps(stream, without), id="other", domain="other", persona="other")
        for ours, theirs in zip(packed_parts(stream, template, 2048), packed_parts(bare, template, 2048), strict=True):
            for column in ("trunk", "tokens", "positions"):
                assert (getattr(ours.row, column) == getattr(theirs.row, column)).all()


TIMES = (0.0, 59.0, 60.0, -60.0, 3e3, 7200.0, -MOST_SECONDS, MOST_SECONDS, 86_400.0 * 365 * 50)


@pytest.mark.parametrize("before", TIMES)
@pytest.mark.parametrize("time", TIMES)
def test_a_time_is_read_as_a_rounded_duration_alone(template, before, time):
    """Nothing but digits and one unit, wherever the clock jumps to; a clock that runs backwards adds nothing."""
    first, event = Event(time=before, text=BENIGN), Event(time=time, text=BENIGN)
    ids, plain = template.event(event, first), template.event(first, None)
    end = plain[-2:]
    assert ids[: len(plain) - 2] == plain[:-2] and ids[-2:] == end
    added = template.tokenizer.decode(ids[len(plain) - 2 : -2])
    assert re.fullmatch(r"( \(\+\d+[mhd]\))?", added)
    assert bool(added) == (time - before >= 60)


def favour_special_tokens(template):
    """Changes a student so that, whatever it reads, a special token has the largest logit: h·v or -h·v."""
    start, end = (template.tokenizer.special(name) for name in ("<|im_start|>", "<|im_end|>"))

    def change(params):
        head = dict(params["head"])
        kernel = np.array(head["kernel"])
        direction = 1e3 * np.random.default_rng(0).normal(size=kernel.shape[0]).astype(kernel.dtype)
        kernel[:, start], kernel[:, end] = direction, -direction
        return {**params, "head": {**head, "kernel": jax.numpy.asarray(kernel)}}

    return change


@pytest.mark.slow
def test_a_student_that_wants_special_tokens_cannot_write_them(live, template, draw_params, monkeypatch):
    change, written, special = favour_special_tokens(template), [], specials(template)
    model = Qwen3(StudentConfig(vocab_size=template.tokenizer.size, tied=False, **SIZES))
    params = change(draw_params(model, seed=4))
    ids = np.array([[*template.system(), *template.event(Event(time=0.0, text=BENIGN), None), *template.head()]])
    favourites = np.asarray(Pretrained(model, params).logits(ids)).argmax(-1)
    assert {*favourites.ravel().tolist()} <= special, "unconstrained, it writes nothing else"

    original = engine.Engine.write

    def write(*arguments):
        written.append(original(*arguments))
        return written[-1]

    monkeypatch.setattr(engine.Engine, "write", write)
    reader, offers = live(template, tied=False, change=change), (Candidate(),)
    for injection in INJECTIONS[::6]:
        reader.observe([("a", Event(time=0.0, text=injection.text), offers)])
        [thought] = reader.think([ThinkRequest("a", offers)])
        [response] = reader.respond([("a", offers[0], thought.fields)])
        assert thought.fields.keys() == SLOW_FIELDS.keys() and all(thought.fields.values())
        assert [*json.loads(response.text)] == ["Purpose", "Thoughts", "Proactive Task", "Response"]
    tokens = {token for batch in written for row in batch for span in row for token in span}
    assert tokens and tokens.isdisjoint(special)


NASTY = ('"', "\\", '\\"', "{", "}}]", '{"a": "b"', "a\nb\r\tc", "\x00\x1f\x7f", "a\u2028\u2029", "\\u0000", "\\ud800")


@pytest.mark.parametrize("text", NASTY)
def test_responses_stay_valid_json(reader, text):
    """Whatever the offer and the fields hold; and whatever a value holds, once it is a string of JSON."""
    reader.observe([("a", Event(time=0.0, text=text), (Candidate(text=text),))])
    for fields in (None, dict.fromkeys(SLOW_FIELDS, text)):
        [response] = reader.respond([("a", Candidate(text=text), fields)])
        values = json.loads(response.text)
        assert [*values] == ["Purpose", "Thoughts", "Proactive Task", "Response"]
        assert all(isinstance(value, str) and value for value in values.values())
    reader.forget("a")
    assert {*json.loads(response_text([json.dumps(text)[1:-1]] * 4)).values()} == {text.strip()}


def test_a_stream_full_of_attacks_does_not_touch_another(live, template):
    """The victim's signals are those of a reader that has never met the attacker, even when its pages are taken."""
    victim = [Event(time=60.0 * i, text=f"Opens the file {i}.") for i in range(4)]

    def signals(reader, between):
        found = []
        for number, event in enumerate(victim):
            [reading] = reader.observe([("victim", event, (Candidate(),))])
            found.append((reading.z_need, *reading.z_accept))
            between(number)
        return found

    alone, crowded = (live(template, context=700, memory=1 << 18) for _ in range(2))

    def attack(number):
        for at, injection in enumerate(INJECTIONS[number::8]):
            event = Event(time=float(at), text=injection.text[:120])
            crowded.observe([(f"attacker {at % 3}", event, (Candidate(text=injection.text[:120]),))])

    expected = signals(alone, lambda _: None)
    np.testing.assert_allclose(signals(crowded, attack), expected, atol=2e-5)
    assert crowded.history("victim") == alone.history("victim")


def test_a_text_that_says_null_is_a_text(template, tmp_path):
    """JSON null is the constant offer; the string "null" is an offer of that name."""
    line = '{"id": "s", "events": [{"time": 0, "text": "null"}], "steps": [{"event": 0, "candidates": [%s]}]}\n'
    path = tmp_path / "streams.jsonl"
    path.write_text(line % '{"text": "null"}, {"text": null}, {}')
    [stream] = read_streams(path)
    text, null, default = stream.steps[0].candidates
    assert stream.events[0].text == "null" and text.text == "null"
    assert null == default == Candidate()
    assert template.leaf(null) == template.leaf(Candidate(text="an offer")) != template.leaf(text)


@pytest.mark.slow
def test_long_texts_do_not_stay_in_memory(simulated):
    """The ids of texts are kept for speed; an attacker's long ones are not."""
    tokenizer = make_tokenizer(simulated, PromptConfig(vocab_size=400))
    for number in range(50):
        assert tokenizer.decode(tokenizer.encode(f"{number} " * 5000)).startswith(f"{number} ")
    assert tokenizer._encode.cache_info().currsize == 0
    tokenizer.encode(BENIGN)
    assert tokenizer._encode.cache_info().currsize == 1
