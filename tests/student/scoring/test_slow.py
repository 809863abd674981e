"""The slow pass: its fields, the signals after them, and the columns of the scores table."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from full_pass import next_logits, trunk

from prism_jax.scores import Scores
from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.edit import map_steps
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.prompting.packing import pack
from prism_jax.student.prompting.supervised import supervised_step
from prism_jax.student.prompting.template import WritingConfig
from prism_jax.student.scoring import passes
from prism_jax.student.scoring.passes import Passes, score_passes
from prism_jax.student.scoring.responses import write_responses
from prism_jax.student.scoring.slow import read_slow, write_fields
from prism_jax.student.scoring.student import Student
from prism_jax.student.scoring.writing import Writer

LIMIT = 4


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(3))


@pytest.fixture(scope="module")
def streams(with_two_offers):
    return with_two_offers[:5]


@pytest.fixture(scope="module")
def student(model, params, template):
    return Student(model, params, template)


@pytest.fixture(scope="module")
def writer(student):
    return Writer(student, batch=2)


@pytest.fixture(scope="module")
def thought(writer, streams):
    return write_fields(writer, streams, context=2048, limit=LIMIT)


@pytest.mark.slow
def test_fields_are_short_lines_that_differ(thought, template):
    texts = set()
    for stream in thought:
        for step in stream.steps:
            assert tuple(step.rationale) == tuple(SLOW_FIELDS)
            for text in step.rationale.values():
                assert text.strip() == text != "" and len(text.splitlines()) == 1
                assert "<|" not in text
                texts.add(text)
    assert len(texts) > 5


def test_the_first_field_is_greedy_on_what_the_step_sees(model, params, template, thought, writer):
    """The first token of each step's first field is the likeliest allowed one after its own trunk."""
    from prism_jax.student.scoring.grammar import LINE, over_tokens

    allowed = over_tokens(LINE, template.tokenizer, model.config.vocab_size).after[0] <= LIMIT - 1
    for stream in thought[:3]:
        for step in stream.steps[::2]:
            ids = [*trunk(template, stream.events[: step.event + 1]), *template.opening(), *template.field_names()[0]]
            logits = np.where(allowed, next_logits(model, params, ids, 320), -np.inf)
            best = template.tokenizer.decode([int(logits.argmax())])
            assert f" {step.rationale['if_silent']}".lstrip().startswith(best.strip())


def test_slow_signals_are_read_after_the_fields(model, params, template, student, thought):
    """Against one forward pass per candidate over trunk, opening, fields, need slot and leaf."""
    got = dict(read_slow(student, thought, context=2048, batch=2))
    for stream in thought[:2]:
        for number, step in enumerate(stream.steps):
            fields = template.slow(step.rationale)
            head = [*trunk(template, stream.events[: step.event + 1]), *template.opening()]
            head += [token for field in fields for token in (*field.name, *field.text)] + template.need()
            z = next_logits(model, params, head, 320)
            p_need = 1 / (1 + np.exp(z[template.no] - z[template.yes]))
            for index, candidate in enumerate(step.candidates):
                z = next_logits(model, params, [*head, *template.leaf(candidate)], 320)
                p_accept = 1 / (1 + np.exp(z[template.no] - z[template.yes]))
                signals = got[stream.id, number, index]
                np.testing.assert_allclose(signals[:2], [p_need, p_accept], atol=2e-5)
                assert signals.tokens == sum(len(field.text) for field in fields)


def test_the_slow_branch_is_packed_as_in_training(template, thought):
    """What deployment reads after generated fields is what training reads after a step's rationale."""
    stream = map_steps(thought[0], lambda step: dataclasses.replace(supervised_step(step), slow=True))
    row = pack(stream, template, 2048)
    first = [*template.opening()]
    for field in template.slow(thought[0].steps[0].rationale):
        first += [*field.name, *field.text]
    assert row.tokens[: len(first)].tolist() == first


@pytest.mark.slow
def test_fields_and_responses_do_not_depend_on_the_batch(student, streams, thought):
    alone = Writer(student, batch=1)
    for stream, expected in zip(streams, thought, strict=True):
        assert write_fields(alone, [stream], context=2048, limit=LIMIT) == [expected]


def test_responses_are_json_of_the_schema(writer, streams):
    written = write_responses(writer, streams, context=2048, limit=LIMIT)
    assert len(written) == sum(len(step.candidates) for stream in streams for step in stream.steps)
    for text in written.values():
        response = json.loads(text)
        assert tuple(response) == RESPONSE_KEYS
        assert all(isinstance(value, str) and value.strip() for value in response.values())
    assert len(set(written.values())) > 5


def score(student, streams, able):
    scored = score_passes(student, streams, able, split="test", fold=0, context=2048, batch=2)
    return Scores.from_rows(scored.rows)


@pytest.mark.slow
def test_the_table_has_what_the_student_can_do(student, streams, thought):
    fast = score(student, streams, Passes())
    assert fast.p_need_slow is None and fast.tokens_response is None
    writing = WritingConfig(field_tokens=LIMIT, response_tokens=LIMIT)
    whole = score(student, streams, Passes(slow=True, responses=True, writing=writing))
    np.testing.assert_allclose(whole.p_accept_fast, fast.p_accept_fast, atol=1e-6)
    read = dict(read_slow(student, thought, context=2048, batch=2))
    for row, key in enumerate(zip(whole.stream, whole.step.tolist(), whole.candidate.tolist(), strict=True)):
        np.testing.assert_allclose(whole.p_need_slow[row], read[key].p_need, atol=2e-5)
        np.testing.assert_allclose(whole.p_accept_slow[row], read[key].p_accept, atol=2e-5)
        assert whole.tokens_slow[row] == read[key].tokens
    assert (whole.tokens_response > 8).all()
    for stream, own in zip(streams, thought, strict=True):
        for number, (step, wrote) in enumerate(zip(stream.steps, own.steps, strict=True)):
            found = whole.fields_correct[(whole.stream == stream.id) & (whole.step == number)]
            right = [wrote.rationale[name] == step.rationale[name] for name in SLOW_FIELDS]
            assert set(found) == {np.mean(right)}


@pytest.mark.slow
def test_fields_are_right_only_in_every_word(student, streams, monkeypatch):
    """The student's own texts are wrong here, so a step is given what it should write, but for one field."""

    def almost(writer, streams, **_):
        def change(step):
            return dataclasses.replace(step, rationale={**step.rationale, "risk": "none at all"})

        return [map_steps(stream, change) for stream in streams]

    monkeypatch.setattr(passes, "write_fields", almost)
    found = score(student, streams, Passes(slow=True))
    assert set(found.fields_correct) == {0.75}
    bare = [map_steps(stream, lambda step: dataclasses.replace(step, rationale=None)) for stream in streams]
    monkeypatch.setattr(passes, "write_fields", lambda *_, **__: almost(None, streams))
    assert score(student, bare, Passes(slow=True)).fields_correct is None


def test_a_context_without_room_for_the_fields_is_an_error_that_names_the_stream(writer, streams):
    with pytest.raises(ValueError, match=f"stream '{streams[0].id}'"):
        write_fields(writer, streams, context=60, limit=30)
