"""Keys stay in the environment, and personal data stays on the machine."""

import asyncio
import json
import logging
import re
import traceback

import pytest
from asking import ask, endpoint_of

from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.failures import EndpointError, secret_free
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Message, Request

CANARY = "sk-canary-0123456789abcdefghijkl"
CASES = {
    "answered": Faults(),
    **{f"quoted in a {status}": Faults(status=status) for status in (400, 401, 404)},
    "limited for good": Faults(limited=1.0),
    "down": Faults(down=((0, 10**6),)),
    "garbled": Faults(garbled=1.0),
}


@pytest.mark.parametrize("case", CASES)
def test_no_log_error_answer_or_file_holds_the_key(tmp_path, caplog, capfd, monkeypatch, case):
    monkeypatch.setenv("PRISM_TEST_KEY", CANARY)
    caplog.set_level(logging.DEBUG)
    said = []
    faults = CASES[case]
    with FakeEndpoint(lambda body: "x", faults) as fake:
        endpoint = endpoint_of(fake, key="PRISM_TEST_KEY", patience=0.05)
        with open_clients(RemoteConfig(str(tmp_path / "cache.sqlite"), budget=1.0), {"only": endpoint}) as clients:
            try:
                said += map(repr, ask(clients.by_name["only"], "hello"))
            except EndpointError as error:
                said += traceback.format_exception(error)
            said += [*clients.tally.lines(), repr(clients), repr(vars(clients.by_name["only"].cache))]
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            said += [path.read_bytes().decode("latin-1") for path in files]
        assert {one["authorization"] for one in fake.headers} == {f"Bearer {CANARY}"}  # it did reach the server
    said += [caplog.text, *capfd.readouterr()]
    assert len(files) >= 2
    for text in said:
        assert "canary" not in text


def test_servers_quote_keys_in_part():
    for quoted in (CANARY, f"'{CANARY}',", "sk-ca***", "sk-canar...ijkl", f"{CANARY[:8]}...{CANARY[-8:]}"):
        clean = secret_free(f"Incorrect API key provided: {quoted} (see the page)", CANARY)
        assert not re.search("canar|ghijkl", clean)
        assert "Incorrect API key" in clean
    assert secret_free("a\n\x1b[31mred\nline", "") == "a \\x1b[31mred line"
    assert secret_free("at https://ann:pw@host/?token=abcd of ann@example.org", "") == (
        "at https://[key]@host/?token=*** of [e-mail]"
    )


def test_the_key_of_another_vendor_is_not_sent_to_an_endpoint_without_one(connected, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-canary")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-canary")
    with connected() as (fake, client):
        ask(client, "hello")
        assert {one["authorization"] for one in fake.headers} == {"Bearer none"}
        assert not any("canary" in value for headers in fake.headers for value in headers.values())


@pytest.mark.parametrize("key", ["sk-canary-0123456789", "openai_api_key", "A B", "K" * 65])
def test_a_key_in_place_of_its_name_is_refused_and_not_repeated(key):
    with pytest.raises(ValueError, match=r"^key: found something else, expected the NAME") as caught:
        EndpointConfig("m", "https://api.example.org/v1", key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://ann:canary@host/v1", "base_url: found credentials or a query in it"),
        ("https://host/v1?api_key=canary", "base_url: found credentials or a query in it"),
        ("ftp://host/v1", "base_url: found 'ftp://host/v1', expected https://HOST/v1"),
        ("host:80", "base_url: found 'host:80', expected https://HOST/v1"),
        ("http://[::1/v1", "base_url: found a broken address"),
        ("http://api.example.org/v1", "base_url: found http://api.example.org with a key, expected https"),
    ],
)
def test_an_address_that_would_show_a_key_is_refused(address, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as caught:
        EndpointConfig("m", address, key="SOME_KEY")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "10.1.2.3", "vllm:8000", "gpu7.internal", "[::1]:80"])
def test_a_private_network_needs_no_encryption(host):
    assert EndpointConfig("m", f"http://{host}/v1", key="SOME_KEY").key == "SOME_KEY"


PERSONAL = {
    "ann.lee@mail.example.com": "[e-mail]",
    "4111 1111 1111 1111": "[card]",
    "+44 20 7946 0958": "[phone]",
    "/home/ann/x.txt": "[home]",
    "hf_abcdefghijklmnopqrstuvwxyz": "[key]",
}


@pytest.mark.parametrize("given", [{}, {"redact": False}], ids=str)
def test_personal_data_reaches_the_endpoint_only_if_that_is_asked_for(connected, tmp_path, given):
    seen = []

    def brain(body):
        seen.append(json.dumps(body, ensure_ascii=False))
        return "x"

    config = RemoteConfig(str(tmp_path / "cache.sqlite"), budget=1.0, **given)
    with connected(brain=brain, config=config) as (_, client):
        for text in PERSONAL:
            ask(client, f"about {text}", json.dumps({"event": f"line\n{text}"}))
        ask(client, "x " + json.dumps({"event": json.dumps(f"line\n{next(iter(PERSONAL))}")}))
    assert len(seen) == 2 * len(PERSONAL) + 1
    for text, kind in PERSONAL.items():
        assert any(text in body for body in seen) == bool(given)
        assert any(kind in body for body in seen) != bool(given)


def test_every_message_of_a_conversation_is_redacted(connected):
    with connected(brain=lambda body: json.dumps([one["content"] for one in body["messages"]])) as (_, client):
        roles = ("system", "user", "assistant", "user")
        request = Request(tuple(Message(role, f"{role} ann@example.org") for role in roles))
        answer = asyncio.run(client.ask(request))
    assert json.loads(answer.text) == [f"{role} [e-mail]" for role in roles]
