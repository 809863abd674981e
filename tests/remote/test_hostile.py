"""Servers that attack: their answers fail rows, never the job, and cost bounded memory, time and money."""

import asyncio
import gzip
import itertools
import json
import tracemalloc
import zlib

import pydantic
import pytest
from asking import ask
from hostile import Hostile, completion, response

from prism_jax.remote.requests import Message
from prism_jax.remote.structured import ask_for, parse

MIB = 2**20


class Number(pydantic.BaseModel):
    number: int


class Numbers(pydantic.BaseModel):
    numbers: list[int]


@pytest.fixture
def attacked(connected):
    """Asks for three texts, of which the server answers `bad` with an attack; returns answers, client and server."""

    def attack(bad, timeout=20.0):
        hostile = Hostile(lambda text: bad() if text == "bad" else response(completion(text)))
        with connected(server=hostile, patience=0.1, timeout=timeout) as (server, client):
            answers = ask(client, "bad", "one", "two")
            assert [answer.text for answer in answers[1:]] == ["one", "two"]
            assert client.cache.spent < 0.01
            return answers[0], client, server

    return attack


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
@pytest.mark.parametrize("kind", ["port", "host", "scheme"])
def test_no_text_follows_a_redirect_to_another_origin(attacked, status, kind):
    with Hostile(lambda text: response(completion("stolen"))) as other:
        port = other.url.split(":")[2]
        place = {"port": other.url, "host": f"http://localhost:{port}", "scheme": f"https://127.0.0.1:{port}"}[kind]
        answer, _, server = attacked(lambda: response(status=status, location=f"{place}/chat/completions"))
        assert other.received == []
    places = (server.url.removesuffix("/v1"), place.removesuffix("/v1"))
    assert "{} redirects to {}, where nothing was sent".format(*places) in answer.error
    assert server.received.count("bad") == 1


def test_a_redirect_within_the_origin_is_followed(connected):
    said = iter([response(status="307 Temporary", location="/v1/chat/completions/"), response(completion())])
    with connected(server=Hostile(lambda text: next(said))) as (server, client):
        assert ask(client, "hello")[0].text == "ok"
    assert server.received == ["hello", "hello"]


def test_a_redirect_that_never_ends_fails_its_row(attacked):
    answer, _, server = attacked(lambda: response(status="308 Permanent Redirect", location="/v1/chat/completions"))
    assert "redirects" in answer.error
    assert server.received.count("bad") < 30


@pytest.mark.parametrize(
    "after",
    [
        *(f"Fri, 31 Dec {year} 23:59:59 GMT" for year in ("99999999", "999999999999999999999")),
        *("Fri, 31 Dec 2024 99999999999999:59:59 GMT", "Fri, 99 Foo 0 00:00:00 +99999999999999999999"),
        *("9" * 400, "1e308", "-1e308", "nan"),
    ],
)
def test_an_absurd_retry_after_fails_its_row(attacked, after):
    answer, _, _ = attacked(lambda: response(b"{}", "429 Too Many Requests", retry_after=after))
    assert "HTTP 429" in answer.error


def large(size=64 * MIB):
    return completion("PLACE").replace(b"PLACE", b"a" * size)


def endless(status="200 OK", part=b"[" * 65536):
    yield response(status=status, content_length=None, transfer_encoding="chunked")
    for _ in range(256 * MIB // len(part)):  # more than the test's bound; a client that reads it all is seen
        yield b"%x\r\n%s\r\n" % (len(part), part)


def endless_redirect():
    yield response(status="307 Temporary Redirect", location="/v1/chat/completions", content_length=10**12)
    yield from itertools.repeat(b"a" * 65536, 4096)


def endless_nothing():
    """A compressed body that is endless and holds nothing."""
    yield response(content_length=None, content_encoding="gzip")
    yield b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    for _ in range(512):
        yield b"\0\0\0\xff\xff" * 65536  # empty stored blocks


BODIES = {
    "large": lambda: response(large(50 * MIB)),
    "large error": lambda: response(large(50 * MIB), "400 Bad Request"),
    "endless": endless,
    "endless error": lambda: endless("500 Internal Server Error"),
    "endless redirect": endless_redirect,
    "endless nothing": endless_nothing,
    "a lie about its length": lambda: response(b"{}", content_length=10**15),
    "gzip": lambda: response(gzip.compress(large(), 1), content_encoding="gzip"),
    "gzip error": lambda: response(gzip.compress(large(), 1), "400 Bad Request", content_encoding="gzip"),
    "deflate": lambda: response(zlib.compress(large(), 1), content_encoding="deflate"),
    "twice": lambda: response(gzip.compress(gzip.compress(large(), 1)), content_encoding="gzip, gzip"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_no_body_is_read_beyond_its_bound(attacked, kind):
    made = BODIES[kind]()
    body = made if isinstance(made, bytes) else None
    tracemalloc.start()
    try:
        answer, _, server = attacked(lambda: body or BODIES[kind](), timeout=10.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.text is None
    assert peak < 40 * MIB
    assert body or server.sent < server.received.count("bad") * 16 * MIB


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
def test_an_answer_may_be_compressed(connected, encoding):
    content = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[encoding](completion("packed"))
    with connected(server=Hostile(lambda text: response(content, content_encoding=encoding))) as (_, client):
        assert ask(client, "hello")[0].text == "packed"


@pytest.mark.parametrize("encoding", ["br", "gzip", "zstd", "gzip, deflate", "nonsense"])
def test_a_body_that_is_not_encoded_as_it_says_fails_its_row(attacked, encoding):
    answer, _, _ = attacked(lambda: response(b"\x1f\x8b no such thing", content_encoding=encoding))
    assert answer.error


@pytest.mark.parametrize("tokens", [2**53 - 1, 10**7, 10**300])
def test_usage_beyond_what_was_reserved_is_not_believed(attacked, tokens):
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
    answer, client, _ = attacked(lambda: response(completion("dear", usage=usage)))
    assert answer.text == "dear"
    # A token per byte of the body, and 50 tokens of answer at twice the price.
    size = len('{"model":"m","messages":[{"role":"user","content":"bad"}],"max_tokens":50,"temperature":0.0}')
    assert answer.cost == pytest.approx((size + 2 * 50) / 1e6)
    assert (answer.prompt_tokens, answer.completion_tokens) == (size, 50)
    assert client.tally.cost < 3e-4


def test_a_text_of_braces_is_parsed_where_an_object_may_begin(monkeypatch):
    tried = []
    decode = json.JSONDecoder.raw_decode
    monkeypatch.setattr(json.JSONDecoder, "raw_decode", lambda *arguments: tried.append(1) or decode(*arguments))
    for text in ("{" * 300_000, "{ \n" * 100_000):
        with pytest.raises(ValueError, match=r"^found 0 JSON objects, expected one$"):
            parse(text, Number)
    assert parse("{" * 300_000 + '{"number": 3}', Number).number == 3
    assert len(tried) <= 1


@pytest.mark.parametrize("text", ["{" * 300_000, '{"number": 1}' * 20_000, '{"numbers": [' + '"x",' * 100_000 + "1]}"])
def test_an_answer_far_beyond_the_tokens_that_were_asked_for_is_not_sent_back(connected, text):
    with connected(server=Hostile(lambda _: response(completion(text)))) as (server, client):
        reply = asyncio.run(ask_for(client, [Message("user", "How many?")], Numbers))
    assert reply.value is None
    assert reply.problem == f"found an answer of {len(text):,} characters, expected one of at most 50 tokens"
    assert server.received == ["How many?"]


@pytest.mark.parametrize("words", [900_000, 10_000])
def test_a_long_error_of_the_server_is_cut(attacked, words):
    body = json.dumps({"error": {"message": "why " * words}}).encode()
    answer, _, _ = attacked(lambda: response(body, "400 Bad Request"))
    assert "HTTP 400" in answer.error
    assert len(answer.error) < 400
