"""The fake endpoint is a real server: any HTTP client can use it, and its faults are repeatable."""

import json
import urllib.error
import urllib.request

import pytest

from prism_jax.remote.fake import FakeEndpoint, Faults


def post(url, body, **headers):
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())


def body_of(text):
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def sdk_of(url, **options):
    import openai

    return openai.OpenAI(api_key="k", base_url=url, **options)


def test_the_sdk_itself_understands_it():
    with FakeEndpoint(lambda body: "hello") as fake, sdk_of(fake.url) as sdk:
        completion = sdk.chat.completions.create(**body_of("x"))
    assert completion.choices[0].message.content == "hello"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens > 0


def test_an_idempotency_key_is_billed_once():
    with FakeEndpoint(lambda body: "hello") as fake:
        for _ in range(3):
            post(fake.url, body_of("x"), **{"Idempotency-Key": "a"})
        assert (fake.received.total(), fake.answered.total(), fake.billed.total()) == (3, 3, 1)
        for _ in range(2):
            post(fake.url, body_of("x"))
        assert (fake.received.total(), fake.answered.total(), fake.billed.total()) == (5, 5, 3)


def outcomes(faults, texts):
    """What each text gets at its first three attempts."""
    found = {}
    with FakeEndpoint(lambda body: json.dumps({"value": 12345}), faults) as fake:
        for text in texts:
            for attempt in range(3):
                try:
                    found[text, attempt] = post(fake.url, body_of(text))["choices"][0]
                except urllib.error.HTTPError as error:
                    found[text, attempt] = error.code
                except (OSError, ValueError) as error:
                    found[text, attempt] = type(error).__name__
    return found


@pytest.mark.parametrize("kind", ["limited", "unavailable", "malformed", "ignores_schema", "truncated", "garbled"])
def test_faults_depend_on_the_seed_the_request_and_its_attempt_only(kind):
    texts = [f"text {number}" for number in range(40)]
    one = outcomes(Faults(**{kind: 0.4}, seed=1), texts)
    assert one == outcomes(Faults(**{kind: 0.4}, seed=1), texts[::-1])
    other = outcomes(Faults(**{kind: 0.4}, seed=2), texts[:10])
    assert any(one[key] != outcome for key, outcome in other.items())
    clean = outcomes(Faults(), ["text 0"])["text 0", 0]
    share = sum(outcome != clean for outcome in one.values()) / len(one)
    assert 0.25 < share < 0.55


def test_a_window_of_arrivals_is_dropped():
    found = outcomes(Faults(down=((2, 4),)), ["a", "b"])
    assert [outcome if isinstance(outcome, str) else "ok" for outcome in found.values()] == [
        *("ok", "ok", "RemoteDisconnected"),
        *("RemoteDisconnected", "ok", "ok"),
    ]


def test_a_brain_that_fails_is_a_server_error_and_other_paths_are_not_found():
    with FakeEndpoint(lambda body: body["no such key"]) as fake:
        with pytest.raises(urllib.error.HTTPError, match="500"):
            post(fake.url, body_of("x"))
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{fake.url}/models")


def test_it_ends_with_connections_open_and_its_port_can_be_used_again():
    with sdk_of("http://127.0.0.1:1/v1", max_retries=5) as sdk:
        port = 0
        for _ in range(2):
            with FakeEndpoint(lambda body: "x", port=port) as fake:
                port = int(fake.url.split(":")[2].split("/")[0])
                sdk.base_url = fake.url
                sdk.chat.completions.create(**body_of("x"))
            assert fake.answered.total() == 1
