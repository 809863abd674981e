"""What a teacher must answer."""

import json

import hypothesis
import pydantic
import pytest
from hypothesis import strategies as st

from prism_jax.labelling.teacher.labelling import Fast, Slow, answer_to
from prism_jax.streams import RESPONSE_KEYS
from prism_jax.streams.types import SLOW_FIELDS

FIELDS = {name: f"{name} in words" for name in SLOW_FIELDS}
RESPONSE = {key: f"{key} in words" for key in RESPONSE_KEYS}


def slow(**changes):
    return FIELDS | {"p_need": 0.4, "p_accept": [0.2, 0.9], "response": RESPONSE} | changes


def test_an_answer_keeps_the_order_of_writing():
    """What is observed stands before what is concluded, and the response last."""
    schema = answer_to(Slow, offers=2).model_json_schema()
    assert list(schema["properties"]) == [*SLOW_FIELDS, "p_need", "p_accept", "response"]
    assert schema["additionalProperties"] is False
    assert list(schema["$defs"]["Response"]["properties"]) == list(RESPONSE_KEYS)
    own = answer_to(Slow, None).model_json_schema()
    assert list(own["properties"]) == [*SLOW_FIELDS, "p_need", "response", "p_accept", "speak"]
    assert own["required"] == list(own["properties"])
    assert list(answer_to(Fast, None).model_json_schema()["properties"]) == ["p_need", "offer", "p_accept"]


def test_a_valid_answer_is_read():
    answer = answer_to(Slow, 2).model_validate_json(json.dumps(slow(evidence=" two\n lines ")))
    assert answer.fields() == FIELDS | {"evidence": "two lines"}
    assert json.loads(answer.response.text()) == RESPONSE
    assert answer_to(Slow, 2).model_validate_json(json.dumps(slow(response=None))).response is None


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        *(("p_need", value, "p_need") for value in (1.2, "likely", None)),
        *(("p_accept", value, "p_accept") for value in ([0.5], [0.5, 0.5, 0.5], 0.5)),
        *(("risk", value, "risk") for value in (" \n", "x" * 401)),
        ("response", RESPONSE | {"Thoughts": ""}, "response.Thoughts"),
        ("response", {key: "x" for key in RESPONSE_KEYS[:3]}, "response.Response"),
        ("reasoning", "First I think that ...", "reasoning"),
    ],
)
def test_a_wrong_answer_is_refused_by_name(key, value, place):
    with pytest.raises(pydantic.ValidationError) as caught:
        answer_to(Slow, 2).model_validate_json(json.dumps(slow(**{key: value})))
    assert ".".join(map(str, caught.value.errors()[0]["loc"])).startswith(place)


@hypothesis.given(st.text().filter(lambda text: text != "NaN"))
def test_nan_is_not_a_probability(text):
    for value in (float("nan"), float("inf"), text):
        with pytest.raises(pydantic.ValidationError):
            answer_to(Fast, 1).model_validate({"p_need": value, "p_accept": [0.5]}, strict=True)


def test_a_teacher_that_proposes_always_writes_an_offer():
    answer = FIELDS | {"p_need": 0.5, "response": RESPONSE, "p_accept": 0.25, "speak": False}
    read = answer_to(Slow, None).model_validate(answer)
    assert (read.response.task, read.p_accept, read.speak) == (RESPONSE["Proactive Task"], 0.25, False)
    silent = [RESPONSE | {"Proactive Task": word} for word in ("null", " None ", "")]
    wrong = [{"response": value} for value in (None, *silent)] + [{"p_accept": [0.25]}, {"speak": None}]
    for change in wrong:
        with pytest.raises(pydantic.ValidationError):
            answer_to(Slow, None).model_validate(answer | change)
    assert answer_to(Fast, None).model_validate({"p_need": 0.5, "offer": "Fix it", "p_accept": 0.5}).offer == "Fix it"
    for word in ("null", ""):
        with pytest.raises(pydantic.ValidationError):
            answer_to(Fast, None).model_validate({"p_need": 0.5, "offer": word, "p_accept": 0.5})
