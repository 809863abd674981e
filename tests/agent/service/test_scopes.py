"""A token is for its tenant and the routes of its scopes alone, in whichever spelling they are asked for."""

import http.client
import json
import re

import pytest

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import Stateful

from prism_jax.agent.service.tokens import Tokens

ASKED = ("decisions", "systemone", "decide", "outcomes", "streams/{}/events")
SCOPED = {
    "decide": [("GET", "/v1/models"), *(("POST", f"/v1/{name}") for name in ASKED)],
    "read": [("GET", f"/v1/{name}") for name in ("records", "offers", "shadow")],
    "people": [
        *((method, "/v1/people/{}") for method in ("GET", "DELETE")),
        *((method, "/v1/people/{}/link") for method in ("POST", "DELETE")),
        ("DELETE", "/v1/streams/{}"),
    ],
}


@pytest.fixture(scope="module")
def scoped(tmp_path_factory):
    tokens = [("default", scope, scope) for scope in SCOPED] + [("default", "two", "decide,read"), "everything"]
    with Stateful(tmp_path_factory.mktemp("scoped"), tokens=tokens) as running:
        yield running


@pytest.mark.parametrize("token", [*SCOPED, "two", "everything"])
def test_a_token_is_for_the_routes_of_its_scopes_alone(scoped, token):
    """Every route below /v1 has a scope; what a token may ask is not refused for the token."""
    paths = scoped.ask("/openapi.json")[1]["paths"].items()
    routes = [(method.upper(), re.sub(r"{[^}]*}", "{}", path)) for path, methods in paths for method in methods]
    below = {route for route in routes if route[1].startswith("/v1/")}
    assert below == {one for own in SCOPED.values() for one in own}
    may = {"two": ("decide", "read"), "everything": tuple(SCOPED)}.get(token, (token,))
    for scope, asked in SCOPED.items():
        for method, path in asked:
            after = "?after=no-cursor" if path == "/v1/offers" else ""
            body = b"{" if method == "POST" else None
            header = f"Bearer {token}"
            status, answer, _ = scoped.ask(path.format("x") + after, body, method=method, Authorization=header)
            refused = status == 403 and answer["error"]["code"] == "insufficient_scope"
            assert refused == (scope not in may), (method, path, status)


CASES = ("/v1/people%2Fx", "/v1//people/x", "/v1/PEOPLE/x", "//v1/people/x", "/v1/people;a/x", "/v1/people/x/")
DOTS = ("/v1/./people/x", "/v1/decide/../people/x", "/v1/%70eople/x", "/%76%31/people/x", "/v1/decide/%2e%2e/people/x")
MORE = ("/v1/records/", "/v1/people/x?token=everything", "/v1/people/x?access_token=everything")


@pytest.mark.parametrize("path", [*CASES, *DOTS, *MORE])
def test_another_spelling_of_a_route_gives_no_more_rights(scoped, path):
    for method in ("GET", "DELETE", "POST", "HEAD", "OPTIONS", "PUT", "get"):
        body = b"{}" if method == "POST" else None
        assert scoped.ask(path, body, method=method, Authorization="Bearer decide")[0] in (403, 404, 405), method


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        *((400, ["Bearer decide", "Bearer everything"][::step]) for step in (1, -1)),
        *((401, [f"{start}everything"]) for start in ("Bearer decide, Bearer ", "Bearer\t", "Basic ")),
        *((401, sent) for sent in (["Bearer Everything"], [])),
        (200, ["bearer everything"]),
    ],
)
def test_a_token_is_that_of_one_header_in_its_own_letters(scoped, status, sent):
    connection = http.client.HTTPConnection(scoped.url.removeprefix("http://"), timeout=10)
    connection.putrequest("GET", "/v1/records")
    for value in sent:
        connection.putheader("Authorization", value)
    connection.putheader("Upgrade", "websocket")  # which is no way around
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


def test_who_mistypes_a_route_is_not_told_to_take_a_token_for_everything(scoped):
    status, answer, _ = scoped.ask("/v1/decision", b"{}", Authorization="Bearer decide")
    assert status == 403 and "found a path that no scope has, expected one" in answer["error"]["message"]


def test_tokens_have_tenants(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("alone\n\nnorth first\n north second \n")
    read = Tokens.read(str(file))
    callers = [read.caller(f"Bearer {token}".encode()) for token in ("alone", "first", "second")]
    assert [caller.tenant for caller in callers] == ["default", "north", "north"] and len(set(callers)) == 3
    assert b"first" not in json.dumps(repr(vars(read))).encode()


FORM = ", expected bearer tokens, one a line"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", f": found no token{FORM}"),
        ("one too many words\n", f":1: found 4 words{FORM}"),
        ("fine\n9f3c decide,read\n", f":2: found scopes where a token is{FORM}"),
        ("north all\n", f":1: found scopes where a token is{FORM}"),
        ("../up token\n", ":1: found a tenant of other characters"),
        ("North token\n", ":1: found a tenant of other characters"),
        ("\nnorth token decide,all\n", ":2: found another scope, expected all, or of decide, read, people some"),
        ("north same\nsouth same\n", ":2: found a token twice, expected each once"),
        ("clé".encode("latin-1"), f":1: found text that is not UTF-8{FORM}"),
        ("token".encode("utf-16"), f":1: found text that is not UTF-8{FORM}"),
        (b"one\n\xff two\n", f":2: found text that is not UTF-8{FORM}"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_is_refused(content, words, tmp_path):
    (tmp_path / "tokens").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=f"tokens{words}"):
        Tokens.read(str(tmp_path / "tokens"))
