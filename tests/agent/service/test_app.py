"""The server over HTTP: clients that know nothing of it, limits, tokens, and errors in the API's shape."""

import asyncio
import concurrent.futures
import contextlib
import gzip
import itertools
import json
import math
import socket
import threading
import urllib.error
import urllib.request
import zlib

import pytest
import zstandard
from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.service.form import MOST_QUESTIONS
from prism_jax.streams import Candidate, Event

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import OneModel, Served, until

from prism_jax.agent.adapters.client import ClientError, Wire
from prism_jax.agent.service.answering import Answering
from prism_jax.agent.service.http import Limits
from prism_jax.agent.service.tokens import Tokens

QUESTIONS = [
    {"type": "predicate", "name": "need", "instructions": "Is help needed?"},
    {"type": "predicate", "name": "accept", "instructions": "Would an offer be accepted?"},
    {"type": "predicate", "name": "accept:Look at it?", "instructions": "Would this one?"},
    {"type": "choice", "name": "which", "instructions": "Which?", "choices": [{"value": "a"}, {"value": "b"}]},
    {"type": "predicate", "instructions": "Is it urgent?"},
]


@pytest.fixture(scope="module")
def served():
    with Served() as running:
        yield running


def body(content="the parser fails", questions=QUESTIONS[:1], model="tiny"):
    return {"model": model, "input": content, "questions": questions}


def wanted(*texts, offers=("Look at it?",), times=None):
    """Need and acceptance as an agent finds them after these events."""
    agent = Agent(FakeReader(slow=False), exported(slow=False))
    for number, text in enumerate(texts):
        event = Event(time=0.0 if times is None else times[number], text=text)
        last = number == len(texts) - 1
        signals = agent.observe("s", event, offers if last else None).fast
    return [signals.need, *signals.accept]


def messages(*texts):
    return [{"role": "user", "content": text} for text in texts]


def probabilities(decision):
    assert [answer.type for answer in decision.answers] == ["predicate"] * 3 + ["refusal"] * 2
    assert [answer.name for answer in decision.answers] == [question.get("name") for question in QUESTIONS]
    return [answer.probability for answer in decision.answers[:3]]


def test_openais_clients_get_their_answers(served):
    import openai

    options = {"base_url": f"{served.url}/v1", "api_key": "any", "max_retries": 0}
    texts = "first", "second"
    expected = wanted(*texts)
    with openai.OpenAI(**options) as client:
        decision = client.decisions.create(model="tiny", input=messages(*texts), questions=QUESTIONS)
        assert [model.id for model in client.models.list()] == ["tiny"]
    found = probabilities(decision)
    assert [found[0], found[2]] == pytest.approx(expected, abs=1e-6)
    assert decision.usage.input_tokens == decision.usage.total_tokens == 2  # of words, to this reader
    assert decision.usage.output_tokens == decision.usage.input_tokens_details.cached_tokens == 0

    async def ask():
        async with openai.AsyncOpenAI(**options) as client:
            extra = {"prompt_cache_key": "k", "prompt_cache_options": {"mode": "implicit"}, "safety_identifier": "s"}
            return await client.decisions.create(model="tiny", input="first", questions=QUESTIONS[:1], **extra)

    assert asyncio.run(ask()).answers[0].probability == pytest.approx(wanted("first")[0], abs=1e-6)


@pytest.mark.filterwarnings("ignore")  # it is in beta, it says
def test_langchains_client_gets_its_answers(served):
    decisions = pytest.importorskip("langchain_openai.decisions", reason="a client of its own")
    model = decisions.OpenAIDecisions(model="tiny", base_url=f"{served.url}/v1", api_key="any", max_retries=0)
    asked = {name: decisions.Predicate(instructions="?") for name in ("need", "accept:Look at it?", "urgent")}
    found = model.invoke({"input": "first", "questions": asked})
    p = [found.predicates[name].probability for name in ("need", "accept:Look at it?")]
    assert p == pytest.approx(wanted("first"), abs=1e-6) and list(found.refusals) == ["urgent"]


def test_pydantic_ais_agent_gets_its_answers(served):
    models = pytest.importorskip("pydantic_ai.models.openai_decisions", reason="a client of its own")
    pydantic = pytest.importorskip("pydantic")
    from pydantic_ai import Agent as TheirAgent
    from pydantic_ai.providers.openai import OpenAIProvider

    class Output(pydantic.BaseModel):
        need: float = pydantic.Field(ge=0, le=1, description="Is help needed?")
        accept: float = pydantic.Field(ge=0, le=1, description="Would an offer be accepted?")

    provider = OpenAIProvider(base_url=f"{served.url}/v1", api_key="any")
    agent = TheirAgent(models.OpenAIDecisionsModel("tiny", provider=provider), output_type=Output)
    found = agent.run_sync("first").output
    assert [found.need, found.accept] == pytest.approx(wanted("first", offers=None), abs=1e-6)


def test_litellms_recorded_request_gets_the_answer_that_it_reads(served):
    """LiteLLM 1.110.2: what `litellm.decisions` sent to this server, and what it needs of an answer."""
    questions = [
        *({"type": "predicate", "name": name, "instructions": "?"} for name in ("need", "accept:Look at it?")),
        {"type": "choice", "name": "which", "instructions": "?", "choices": [{"value": "a"}, {"value": "b"}]},
    ]
    content = [
        {"role": "user", "type": "message", "content": "first"},
        {"role": "user", "type": "message", "content": [{"type": "input_text", "text": "second"}]},
    ]
    sent = {"Authorization": "Bearer any", "User-Agent": "litellm/1.110.2", "Accept": "*/*"}
    status, answer, _ = served.ask(body=body(content, questions), **sent)
    assert status == 200
    assert [one["type"] for one in answer["answers"]] == ["predicate", "predicate", "refusal"]
    assert all("name" in one for one in answer["answers"])
    p = [one["probability"] for one in answer["answers"][:2]]
    assert p == pytest.approx(wanted("first", "second"), abs=1e-6)
    assert {type(answer["usage"][name]) for name in ("input_tokens", "output_tokens", "total_tokens")} == {int}


def by_system_one(served, state, names=("need", "accept:Look at it?"), **more):
    questions = {name: {"type": "noul", "instructions": "?"} for name in names}
    return served.ask("/v1/systemone", {"model": "tiny", "state": state, "questions": questions, **more})


def timed(*events):
    return [{"time": time, "text": text} for time, text in events]


@pytest.mark.parametrize(
    ("state", "content"),
    [
        ("first", "first"),
        (["first", "second"], messages("first", "second")),
        (timed((0, "again"), (7200.5, "again")), None),
        (timed((3, "alone"))[0], None),
    ],
)
def test_both_forms_have_the_same_probabilities(served, state, content):
    events = state if isinstance(state, list) else [state]
    content = content or [{"role": "user", "content": [{"type": "input_json", "data": one}]} for one in events]
    status, answer, _ = by_system_one(served, state)
    _, decision, _ = served.ask(body=body(content, QUESTIONS[:3]))
    expected = {one["name"]: {"type": "noul", "noul": one["probability"]} for one in decision["answers"]}
    assert status == 200 and answer["answers"] == {name: expected[name] for name in ("need", "accept:Look at it?")}
    seen = [one if isinstance(one, dict) else {"time": 0, "text": one} for one in events]
    p = wanted(*(one["text"] for one in seen), times=[float(one["time"]) for one in seen])
    assert [one["noul"] for one in answer["answers"].values()] == pytest.approx(p, abs=1e-6)
    assert answer["model"] == "tiny" and answer["usage"]["input_tokens"] == decision["usage"]["input_tokens"]


def test_typesafes_client_gets_its_answers(served):
    sdk = pytest.importorskip("typesafe_sdk", reason="a client of its own")
    asked = {
        **{name: sdk.Noul(instructions="?") for name in ("need", "accept:Look at it?", "urgent")},
        "tone": sdk.Choice(instructions="?", criteria={"calm": None, "angry": "Loud."}),
    }
    with sdk.TypeSafeClient(api_key="any", base_url=served.url, model="tiny") as client:
        found = client.system_one(state="first", questions=asked)
        assert [(one.name, one.release_date) for one in client.models.list().models] == [("tiny", "1970-01-01")]
        long = client.system_one(state=["first", "x" * 3000], questions=asked)  # compressed, where it can
        with pytest.raises(sdk.TypeSafeUnprocessableEntityError, match="questions: found noul urgent"):
            client.system_one(state="first", questions={"urgent": asked["urgent"]})
        with pytest.raises(sdk.TypeSafeNotFoundError, match="model: found 'jev-latest', expected 'tiny'"):
            client.system_one(state="first", questions=asked, model="jev-latest")
    assert [found.nouls[name].noul for name in list(asked)[:2]] == pytest.approx(wanted("first"), abs=1e-6)
    assert list(found.answers) == list(asked)[:2] and found.usage.input_tokens == 1
    assert long.nouls["need"].noul == pytest.approx(wanted("first", "x" * 3000)[0], abs=1e-6)


@pytest.mark.parametrize("form", ["", "systemone:"])
def test_an_agent_elsewhere_that_asks_for_the_slots_decides_as_one_here(served, tmp_path, form):
    """Times, candidates and their texts reach the model as they are, by both forms."""
    from prism_jax.agent.loading import load_decisions
    from prism_jax.gate import Gate
    from prism_jax.remote.cache import Cache

    offers, url, gate = (Candidate(text="Tea? (now: 5)"), Candidate()), f"{form}{served.url}/v1", Gate(exported().point)
    here = Agent(FakeReader(slow=False, responses=False), exported(slow=False, responses=False))
    with Cache(tmp_path / "answers.sqlite", 0.0) as cache:
        there = Agent(*load_decisions(url, "tiny", gate, questions="slots", cache=cache))
        for number in range(6):
            event = Event(time=1000.5 * number**2, text=f"event {number}")
            mine, theirs = here.observe("s", event, offers), there.observe("s", event, offers)
            assert theirs.unanswered is None and theirs.tokens["read"] == 2 * (number + 1)
            assert theirs.fast.need == pytest.approx(mine.fast.need, abs=1e-6)
            assert theirs.fast.accept == pytest.approx(mine.fast.accept, abs=1e-6)
            assert (theirs.spoke, theirs.candidate) == (mine.spoke, mine.candidate)
        defaults, _ = load_decisions(url, "tiny", gate, cache=cache)
        (unanswered,) = defaults.observe([("s", event, offers)])
        for reader in (there.reader, defaults):
            reader.close()
    assert unanswered.reason == (
        "the decision model refuses the question of acceptance of candidate 0; one that prism_jax serves is asked by "
        "--questions=slots"
    )


@pytest.mark.parametrize(
    ("param", "changed", "words"),
    [
        ("state", {"state": 3}, "state: Input should be a valid"),
        ("state", {"state": []}, "state: found 0 events, expected 1 to 2048"),
        ("state[1]", {"state": ["x", 3]}, "state[1]: found 3, expected a text, or {"),
        ("state", {"state": {"message": "x"}}, """state: found {'message': 'x'}, expected {"time": SECONDS"""),
        ("state[1]", {"state": timed((1, "x"), (0, "x"))}, "events are in time order"),
        ("questions", {"questions": {}}, "questions: Dictionary should have at least 1 item"),
        ("questions", {"questions": {"need": {"type": "score", "criteria": ["a"]}}}, "found score need, expected a"),
        ("questions.accept:", {"questions": {"accept:": {"type": "noul"}}}, "questions.accept:: text"),
        ("assets", {"assets": {"a": {"type": "image"}}}, "assets: found 1, expected none"),
        ("images", {"images": ["iVBORw0KGgo="]}, "images: found 1, expected none"),
    ],
)
def test_a_bad_request_of_system_one_is_named(served, param, changed, words):
    status, answer, _ = by_system_one(served, **{"state": "x"} | changed)
    assert (status, answer["error"]["param"]) == (422, param) and words in answer["error"]["message"]


COMPRESSED = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda content: zstandard.ZstdCompressor().compress(content),
}


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_compressed_body_is_decoded_within_the_bound(encoding):
    def ask(content, pack=COMPRESSED[encoding]):
        return served.ask(body=pack(json.dumps(content).encode()), content_encoding=encoding)

    with Served(limits=Limits(body=2000)) as served:
        assert ask(body())[:2] == served.ask(body=body())[:2]
        for status, answer, _ in (ask(body("x" * 10**6)), served.ask(body=body("x" * 2500))):
            assert status == 413 and answer["error"]["message"].startswith("body: found more than 2000 bytes")
        status, answer, _ = ask(body(), pack=bytes)
        assert status == 400 and answer["error"]["message"].startswith("body: found it not in its Content-Encoding")
        for pack in (
            lambda content: COMPRESSED[encoding](content)[:-9],
            lambda content: COMPRESSED[encoding](content[:20]) + COMPRESSED[encoding](content[20:]),
        ):
            status, answer, _ = ask(body(), pack=pack)
            assert status == 400 and "it ends too early, or more follows" in answer["error"]["message"]
        status, answer, _ = served.ask(body=body(), content_encoding=f"{encoding}, br")
        assert status == 415 and "expected zstd, gzip or deflate, once" in answer["error"]["message"]


def json_part(**data):
    return [{"role": "user", "content": [{"type": "input_json", "data": data}]}]


@pytest.mark.parametrize(
    ("param", "changed", "words"),
    [
        ("model", {"model": "other"}, "model: found 'other', expected 'tiny'"),
        ("input", {"input": []}, "input: List should have at least 1 item"),
        ("input.0.role", {"input": [{"role": "assistant", "content": "x"}]}, "role: Input should be 'user'"),
        ("questions", {"questions": QUESTIONS[:1] * (MOST_QUESTIONS + 1)}, "questions: List should have at most 400"),
        ("questions.0.type", {"questions": [{"type": "box"}]}, "questions.0.type: Input should be 'predicate'"),
        ("input[0].content", {"input": json_part(time="1", text="x")}, "input[0].content: found {'time': '1'"),
        ("input[0].content", {"input": json_part(time=math.inf, text="x")}, "input[0].content: found {'time'"),
        ("input[0].content", {"input": json_part(time=10**400, text="x")}, "input[0].content: found {'time'"),
        ("input[1].content", {"input": json_part(time=1, text="x") + json_part(time=0, text="x")}, "time order"),
        ("questions[0].name", {"questions": [{"type": "predicate", "name": "accept:"}]}, "questions[0].name: text"),
    ],
)
def test_a_bad_request_is_named(served, param, changed, words):
    status, answer, headers = served.ask(body=body() | changed)
    assert (status, answer["error"]["param"]) == (404 if param == "model" else 422, param)
    assert words in answer["error"]["message"] and answer["error"]["type"].endswith("_error")
    assert set(answer["error"]) == {"message", "type", "param", "code"} and headers["x-request-id"]


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"[]", b"null", b'{"model": "tiny", "input": "\\ud800", "questions": []}']
)
def test_what_is_no_request_is_refused(served, content):
    status, answer, _ = served.ask(body=content)
    assert status in (400, 422) and answer["error"]["message"]


def test_routes_that_are_none_have_the_apis_shape(served):
    status, answer, _ = served.ask("/v1/nothing")
    assert (status, answer["error"]["type"]) == (404, "not_found_error")
    for path in ("/v1/decide", "/v1/people/ada", "/me"):
        assert "serve --state=DIR" in served.ask(path)[1]["error"]["message"]
    assert served.ask("/v1/decisions")[0] == 405
    assert served.ask("/healthz")[1] == {"status": "ok"}
    schema = served.ask("/openapi.json")[1]
    assert set(schema["paths"]) == {"/v1/decisions", "/v1/systemone", "/v1/models", "/healthz", "/readyz"}


def test_a_page_in_a_browser_cannot_ask_under_a_name_of_its_own(served):
    assert served.ask(body=body(), Host="evil.example")[0] == 400
    assert served.ask(body=body(), Host=f"localhost:{served.port}")[0] == 200
    status, answer, _ = served.ask(body=body(), content_type="text/plain")  # what a page may send without being asked
    assert status == 422 and "expected application/json" in answer["error"]["message"]


def test_only_who_has_a_token_may_ask():
    with Served(tokens=("first", "second")) as served:
        assert served.ask("/healthz")[0] == 200
        for header in ({}, {"Authorization": "Bearer third"}, {"Authorization": "first"}, {"Authorization": "Bearer "}):
            for path, content in (("/v1/decisions", body()), ("/v1/models", None)):
                status, answer, _ = served.ask(path, content, **header)
                assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
                assert ("found none" in answer["error"]["message"]) == (not header)
        for token in ("first", "second"):
            assert served.ask(body=body(), Authorization=f"Bearer {token}", Host="any.example")[0] == 200


LETTERS = ("plain", "cl\u00e9", "cle\u0301", "\u0142\u00f3d\u017a", "\U0001d7d8", "a=b~c")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("token", LETTERS)
def test_a_file_knows_its_own_tokens_whatever_their_letters(token, mark, tmp_path):
    file = tmp_path / "tokens"
    file.write_bytes(mark + f"{token}\r\nnorth other\n".encode())
    read = Tokens.read(str(file))
    assert read.tenants == ["default", "north"]
    for encoding in ("utf-8", "latin-1"):
        with contextlib.suppress(UnicodeEncodeError):
            assert read.caller(f"Bearer {token}".encode(encoding)).tenant == "default"
    assert read.caller(b"Bearer other").tenant == "north" and read.caller(b"Bearer cl") is None


def test_tokens_of_any_letters_reach_the_server():
    with Served(tokens=LETTERS) as served:
        for token in LETTERS:
            assert Wire(served.url, token, 5.0).post("/v1/decisions", body(), {})
            with pytest.raises(ClientError, match="401"):
                Wire(served.url, token + "x", 5.0).post("/v1/decisions", body(), {})


def test_who_has_no_token_is_refused_before_a_body_is_read_and_none_may_stall():
    with Served(tokens=("first",), limits=Limits(seconds=0.3)) as served:
        for header, status in (("", b"401"), ("Authorization: Bearer first\r\n", b"408")):
            with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
                head = f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\n{header}Content-Length: 1000\r\n\r\n{{"
                connection.sendall(head.encode())
                assert connection.recv(100).split()[1] == status


@contextlib.contextmanager
def busy(content="the parser fails", **options):
    """A server that answers a first request and waits with it at its gate, that request, and how to ask beside it."""
    with Served(**options) as served, concurrent.futures.ThreadPoolExecutor(16) as threads:

        def ask(content, **headers):
            return threads.submit(served.ask, body=body(content), **headers)

        served.gate.clear()
        first = ask(content, Authorization=f"Bearer {content}")
        assert served.begun.wait(20)
        yield served, first, ask


def test_who_has_gone_takes_nobodys_place():
    with busy(limits=Limits(waiting=2)) as (served, first, ask):
        data = json.dumps(body()).encode()
        lines = "POST /v1/decisions HTTP/1.1", "Host: localhost", "Content-Type: application/json"
        head = "\r\n".join([*lines, f"Content-Length: {len(data)}"])
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", served.port)) as connection:
                connection.sendall(head.encode() + b"\r\n\r\n" + data)
                until(lambda: served.waiting() == 1)
            until(lambda: served.waiting() == 0)
        last = ask("later")
        until(lambda: served.waiting() == 1)
        served.gate.set()
        assert first.result()[0] == last.result()[0] == 200


def test_who_comes_when_too_many_wait_is_asked_to_come_back():
    with busy(limits=Limits(waiting=3)) as (served, first, ask):
        more = [ask(str(number)) for number in range(12)]
        done = list(itertools.islice(concurrent.futures.as_completed(more, timeout=20), 9))
        refused = [future.result() for future in done]
        assert {status for status, _, _ in refused} == {429}
        assert {headers["retry-after"] for _, _, headers in refused} == {"1"}
        served.gate.set()
        answers = [first.result(), *(future.result() for future in more if future not in done)]
        assert {status for status, _, _ in answers} == {200}


def test_requests_of_a_tenant_under_way_are_bounded_for_that_tenant_alone(monkeypatch):
    monkeypatch.setattr("prism_jax.agent.service.http.MOST_LISTENERS", 1)
    tokens = [("north", "n"), ("south", "s")]
    with busy("n", tokens=tokens, limits=Limits(waiting=1)) as (served, first, ask):
        second = ask("n", Authorization="Bearer n")
        until(lambda: served.waiting() == 1)
        for token, words in (("n", "2 requests of yours"), ("s", "too many requests waiting")):
            status, answer, _ = ask(token, Authorization=f"Bearer {token}").result()
            assert status == 429 and words in answer["error"]["message"]
        assert served.ask("/v1/models", Authorization="Bearer s")[0] == 200
        served.gate.set()
        assert first.result()[0] == second.result()[0] == 200


def test_a_model_that_is_not_there_yet_is_not_asked_and_one_that_fails_says_why():
    gate, failed = threading.Event(), threading.Event()

    def load():
        assert gate.wait(20)
        raise ValueError("no such model")

    with Served(load=load) as served:
        served.app.state.prism.on_failure = failed.set
        for path, content in (("/readyz", None), ("/v1/decisions", body())):
            status, answer, headers = served.ask(path, content)
            assert (status, answer["error"]["type"], headers["retry-after"]) == (503, "service_unavailable", "1")
        gate.set()
        assert failed.wait(5) and str(served.app.state.prism.failure) == "no such model"


@pytest.mark.anyio
async def test_a_server_that_cannot_say_that_it_is_ready_fails_and_lets_nobody_wait():
    """Such as one whose standard error nobody reads any more."""
    failed = threading.Event()

    def say():
        raise BrokenPipeError

    served = OneModel(lambda: Answering(FakeReader(slow=False), exported(slow=False)))
    served.on_ready, served.on_failure = say, failed.set
    served.start()
    await asyncio.to_thread(failed.wait, 20)
    await served.stop()
    assert failed.is_set() and isinstance(served.failure, BrokenPipeError)


def test_a_server_that_stops_finishes_what_it_has_begun():
    with busy() as (served, first, _):
        served.server.should_exit = True
        until(lambda: not served.server.servers[0].is_serving())
        served.gate.set()
        assert first.result()[0] == 200
    with pytest.raises(urllib.error.URLError):
        served.ask("/healthz")
