"""Values out of answers: what is tolerated, what is refused, and what is fed back."""

import asyncio
import json

import pydantic
import pytest
from asking import ask
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.remote.fake import Faults, question
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import FEEDBACK, ask_for, parse, schema_of


class Inner(pydantic.BaseModel):
    title: str
    default: float = 0.5


class Reading(pydantic.BaseModel):
    """What a test asks for."""

    p: float = pydantic.Field(ge=0, le=1, description="A probability.")
    words: list[str] = []
    inner: Inner | None = None


GOOD = '{"p": 0.25, "words": ["a {b} c"]}'
TOLERATED = (
    GOOD,
    f"  {GOOD}\n",
    f"```json\n{GOOD}\n```",
    f"```\n{GOOD}\n```",
    f"Sure, here it is:\n```json\n{GOOD}\n```\nI hope {{this}} helps.",
    f"The answer is {GOOD}, as {{ p }} says.",
    json.dumps(json.loads(GOOD), indent=4),
    '{"p": 0.25, "words": ["a {b} c"], "inner": null}',
)


@pytest.mark.parametrize("text", TOLERATED)
def test_fences_and_prose_around_one_object_are_tolerated(text):
    assert parse(text, Reading) == Reading(p=0.25, words=["a {b} c"])


REFUSED = {
    "": "found 0 JSON objects, expected one",
    "no": "found 0 JSON objects, expected one",
    "[1, 2]": "found 0 JSON objects, expected one",
    f"{GOOD} or {GOOD}": "found 2 JSON objects, expected one",
    '{"p": 0.25': "found broken JSON (Expecting ',' delimiter), expected one JSON object",
    '{"note": {"p": 0.25}, "wor': "found broken JSON",
    '{"p": 0.25, "p": 0.5}': "found a key twice in one object, expected each key once",
    '{"p": NaN}': "found NaN, expected a finite number",
    '{"p": 1.5}': "p: Input should be less than or equal to 1",
    '{"words": []}': "p: Field required",
    '{"p": 0.5, "inner": {"title": 3}}': "inner.title: Input should be a valid string",
    '{"a":' * 100_000: "found brackets nested too deep, expected one JSON object",
}


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_a_problem_in_one_line(text):
    with pytest.raises(ValueError) as caught:
        parse(text, Reading)
    assert str(caught.value).startswith(REFUSED[text])
    assert "\n" not in str(caught.value)


@given(st.text(alphabet='{}[]":, \\ab1', max_size=40))
def test_no_text_raises_anything_else(text):
    try:
        parse(text, Reading)
    except ValueError as error:
        assert len(str(error)) < 700


@given(st.floats(0, 1), st.lists(st.text()))
def test_every_value_comes_back(p, words):
    value = Reading(p=p, words=words)
    assert parse(f"Well: {value.model_dump_json()}!", Reading) == value


def test_the_schema_is_one_that_strict_servers_take():
    schema = schema_of(Reading)
    assert schema["required"] == ["p", "words", "inner"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Inner"]["required"] == ["title", "default"]
    assert set(schema["$defs"]["Inner"]["properties"]) == {"title", "default"}
    assert schema["properties"]["p"] == {"description": "A probability.", "maximum": 1, "minimum": 0, "type": "number"}
    assert '"default":' not in json.dumps(schema["properties"])


def ask_reading(client, retries=2):
    return asyncio.run(ask_for(client, [Message("system", "Hi"), Message("user", "How likely?")], Reading, retries))


def test_what_is_wrong_is_fed_back_until_the_answer_is_valid(connected):
    said = ["{}", '{"p": 2}', '{"p": 0.5}']
    bodies = []

    def brain(body):
        bodies.append(body)
        return said[len(bodies) - 1]

    with connected(brain=brain) as (_, client):
        reply = ask_reading(client)
    assert (reply.value, reply.problem) == (Reading(p=0.5), None)
    assert [answer.text for answer in reply.answers] == said
    assert [len(body["messages"]) for body in bodies] == [2, 4, 6]
    assert bodies[2]["messages"][:4] == bodies[1]["messages"]
    roles = [one["role"] for one in bodies[2]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert bodies[1]["messages"][2]["content"] == "{}"
    assert bodies[1]["messages"][3]["content"].startswith(f"{FEEDBACK}p: Field required\n")
    assert "less than or equal to 1" in bodies[2]["messages"][5]["content"]
    assert {question(body) for body in bodies} == {"How likely?"}


def test_a_model_that_never_obeys_is_a_problem_and_not_a_guess(connected):
    with connected(brain=lambda body: '{"p": "high"}') as (fake, client):
        for _ in range(2):  # then from the cache: the same, for nothing
            reply = ask_reading(client, retries=1)
            assert reply.value is None and reply.problem.startswith("p: Input should be a valid number")
            assert len(reply.answers) == fake.received.total() == 2


@pytest.mark.parametrize("kind", ["malformed", "ignores_schema", "truncated"])
def test_bad_content_is_fed_back_or_becomes_a_problem(connected, kind):
    with connected(Faults(**{kind: 0.5}), brain=lambda body: GOOD) as (_, client):

        async def ask_many():
            messages = [[Message("user", f"How likely is {number}?")] for number in range(20)]
            return await asyncio.gather(*(ask_for(client, one, Reading, 6) for one in messages))

        replies = asyncio.run(ask_many())
    assert {reply.value.p for reply in replies} == {0.25}
    assert max(len(reply.answers) for reply in replies) > 1
    bad = [answer for reply in replies for answer in reply.answers[:-1]]
    assert all(answer.error is None for answer in bad)  # each was paid, and is in the cache
    if kind == "truncated":
        assert {answer.finish for answer in bad} == {"length"}


@pytest.mark.parametrize(
    ("faults", "words", "asked"),
    [
        (Faults(truncated=1.0), "it was cut short at the longest length allowed; found broken JSON", 3),
        (Faults(status=400), "HTTP 400", 1),
    ],
)
def test_a_problem_says_what_became_of_the_last_answer(connected, faults, words, asked):
    with connected(faults, brain=lambda body: GOOD) as (_, client):
        reply = ask_reading(client)
    assert words in reply.problem and len(reply.answers) == asked


@pytest.mark.parametrize("schema", ["json_schema", "json_object", "none"])
def test_each_kind_of_server_is_told_the_schema(connected, schema):
    bodies = []

    def brain(body):
        bodies.append(body)
        return GOOD

    with connected(brain=brain, schema=schema) as (_, client):
        assert ask_reading(client).value.p == 0.25
        asyncio.run(ask_for(client, [Message("user", "How likely?")], Reading))
    with_system, without = bodies
    assert with_system["messages"][-1]["content"] == without["messages"][-1]["content"] == "How likely?"
    if schema == "json_schema":
        told = with_system["response_format"]["json_schema"]
        assert (told["name"], told["strict"], told["schema"]) == ("Reading", True, schema_of(Reading))
        assert len(without["messages"]) == 1
    else:
        assert with_system.get("response_format") == ({"type": "json_object"} if schema == "json_object" else None)
        assert len(with_system["messages"]) == len(without["messages"]) == 2
        for body in bodies:
            told = body["messages"][0]["content"]
            assert json.loads(told[told.index("{") :]) == schema_of(Reading)


def test_free_text_is_asked_for_without_a_schema(connected):
    with connected(brain=lambda body: str("response_format" in body)) as (_, client):
        assert ask(client, "hello")[0].text == "False"
