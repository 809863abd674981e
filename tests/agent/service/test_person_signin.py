"""Who gets in to the page of the person: links, sessions, forms, headers, and nobody else."""

import concurrent.futures
import re

import pytest

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import Stateful
from visitor import Visitor, cookie_of, counts, decide, key_of, offer_numbers, stated

from prism_jax.agent.service import person_page
from prism_jax.agent.state.preferences import LEVELS


def test_a_link_opens_the_page_once_and_looking_at_it_does_not_use_it_up(served):
    key = key_of(served, "ada")
    scanner, ada, eve = (Visitor(served) for _ in range(3))
    for _ in range(3):
        status, page, _ = scanner.ask(f"/me/link?key={key}")
        assert status == 200 and "Open my page" in page
    assert scanner.ask("/me")[0] == 401
    assert ada.ask("/me/link", {"key": key})[0] == 303
    assert ada.ask("/me")[0] == 200 and "Signed in as" in ada.page
    assert eve.ask("/me/link", {"key": key})[0] == 410 and eve.ask("/me")[0] == 401
    assert eve.ask(f"/me/link?key={key}")[0] == 410


def test_of_many_presses_at_once_one_gets_in(served):
    key = key_of(served, "ada")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Visitor(served).ask("/me/link", {"key": key})[0], range(16)))
    assert sorted(found) == [303] + [410] * 15


def test_links_and_sessions_end_in_their_time(served, clock):
    begin, key = clock.now, key_of(served, "ada")
    early = key_of(served, "ada")
    clock.now = begin + 15 * 60 - 1
    ada = Visitor(served)
    assert ada.ask("/me/link", {"key": early})[0] == 303
    clock.now = begin + 15 * 60
    assert Visitor(served).ask("/me/link", {"key": key})[0] == 410
    clock.now = begin + 15 * 60 - 1 + 30 * 86400 - 1
    assert ada.ask("/me")[0] == 200
    clock.now += 1
    assert ada.ask("/me")[0] == 401


def test_what_a_clock_made_that_was_ahead_does_not_outlast_its_repair(served, clock):
    right, clock.now = clock.now, clock.now + 365 * 86400.0
    key, ada = key_of(served, "ada"), Visitor(served)
    assert ada.ask("/me/link", {"key": key_of(served, "ada")})[0] == 303 and ada.ask("/me")[0] == 200
    clock.now -= 60.0
    assert ada.ask("/me")[0] == 200, "clocks are set by a little"
    clock.now = right
    assert ada.ask("/me")[0] == 401 and Visitor(served).ask("/me/link", {"key": key})[0] == 410


def test_the_cookie_is_for_the_server_alone_and_a_link_is_no_session(served):
    key = key_of(served, "ada")
    _, _, headers = Visitor(served).ask("/me/link", {"key": key})
    (cookie,) = headers.get_all("set-cookie")
    name, flags = cookie.split("=")[0], {part.strip().lower() for part in cookie.split(";")[1:]}
    assert name == "prism-me" and {"httponly", "samesite=strict", "path=/", "max-age=2592000"} <= flags
    assert "secure" not in flags
    forwarded = {"X-Forwarded-Proto": "https"}  # as a proxy on this machine says
    _, _, headers = Visitor(served).ask("/me/link", {"key": key_of(served, "ada")}, **forwarded)
    (cookie,) = headers.get_all("set-cookie")
    assert cookie.startswith("__Host-prism-me=") and "; Secure" in cookie
    unused = key_of(served, "ada")
    assert Visitor(served, Cookie=f"prism-me={unused}").ask("/me")[0] == 401
    session = re.findall(r"prism-me=([^;]+)", cookie)[0]
    assert Visitor(served, Cookie=f"prism-me={session}").ask("/me")[0] == 200
    assert Visitor(served).ask("/me/link", {"key": session})[0] == 410
    for other in (session[:-1] + ("A" if session[-1] != "A" else "B"), session + "A", "", "default.0.", "../../x.1.y"):
        assert Visitor(served, Cookie=f"prism-me={other}").ask("/me")[0] == 401


def test_a_form_of_another_page_changes_nothing(served):
    decide(served, "ada", 0.9, 0.9)
    ada, eve = Visitor(served).sign_in("ada"), Visitor(served).sign_in("eve")
    mine, site = {"form_token": ada.form_token}, "Sec-Fetch-Site"
    every = {"level": "2", "for": "week", "end_now": "1", "outcome": "accepted", "number": "1", "word": "forget"}
    for fields, headers in (
        *((fields, {}) for fields in ({}, {"form_token": eve.form_token}, {"form_token": "é\ud800"})),
        *((mine, {site: value}) for value in ("cross-site", "same-site", "none", None)),
        *((mine, headers) for headers in ({"Origin": "https://evil.example"}, {site: None, "Origin": "null"})),
    ):
        for path in ("level", "silence", "hours", "outcome", "reset", "forget", "out"):
            assert ada.ask(f"/me/{path}", {**every, **fields}, **headers)[0] == 403, (path, fields, headers)
    stranger = Visitor(served, **{site: "cross-site"})
    assert stranger.ask("/me/link", {"key": key_of(served, "ada")})[0] == 403
    assert ada.ask("/me")[0] == 200 and re.search(r'value="0" checked', ada.page)
    for headers in ({}, {site: None}):
        assert ada.ask("/me/level", mine | {"level": "2"}, Origin=served.url, **headers)[0] == 303


def test_every_answer_forbids_what_a_page_does_not_need(served):
    ada = Visitor(served).sign_in("ada")
    assets = ("/me/page.css", "/me/person.css", "/me/page.js", "/me/icon.svg")
    paths = ("/me", "/me/link?key=none", *assets, "/me/export", "/me/forget")
    found = [ada.ask(path)[2] for path in paths] + [Visitor(served).ask("/me")[2], ada.post("/me/level", level="1")[2]]
    found += [ada.ask("/me/none")[2], ada.ask("/me/level")[2], ada.ask("/me/level", {"x": "y" * 20_000})[2]]
    for headers in found:
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert {policy[f"{kind}-src"] for kind in ("style", "script", "img")} == {policy["form-action"]} == {"'self'"}
        assert headers["cache-control"] == "no-store" and headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    ada.ask("/me")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! src=)", ada.page)
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert served.ask(path)[0] == 404, "no page with scripts of others stands beside it"


def test_nobody_sees_another_person_or_tenant(tmp_path, clock):
    tokens = [("north", "first-token"), ("south", "second-token")]
    north, south = {"authorization": "Bearer first-token"}, {"authorization": "Bearer second-token"}
    with Stateful(tmp_path / "state", tokens=tokens, clock=clock, partitions=1) as served:  # so that numbers meet
        assert served.ask("/v1/people/ada/link", b"")[0] == 401
        asked = stated("s", 0.9, [0.9], person="ada")
        for text, header in (("of the north", north), ("of the south", south)):
            assert served.ask("/v1/decide", {**asked, "candidates": [text]}, **header)[1]["speak"]
        served.ask("/v1/decide", {**asked, "person": "bob", "stream": "b", "candidates": ["bob's"]}, **north)
        ada, other = Visitor(served).sign_in("ada", **north), Visitor(served).sign_in("ada", **south)
        bob, new = Visitor(served).sign_in("bob", **north), Visitor(served).sign_in("carl", **north)
        shown = [set(re.findall("of the north|of the south|bob&#39;s", one.page)) for one in (ada, other, bob, new)]
        assert shown == [{"of the north"}, {"of the south"}, {"bob&#39;s"}, set()]
        (number,) = offer_numbers(bob.page)
        typed = {"outcome": "dismissed", "person": "bob", "tenant": "south", "stream": "b", "offer": "b/0"}
        before = [served.ask("/v1/records", **header)[1] for header in (north, south)]
        for wrong in {str(n) for n in range(1, 9)} - set(offer_numbers(ada.page)):
            assert ada.post("/me/outcome", number=wrong, **typed)[0] == 404
            assert new.post("/me/outcome", number=number, **typed)[0] == 404
        assert [served.ask("/v1/records", **header)[1] for header in (north, south)] == before
        for mark in ("?person=bob&tenant=south", "?tenant=south"):
            assert "of the south" not in ada.ask(f"/me{mark}")[1] and "bob" not in ada.ask(f"/me/export{mark}")[1]
        for tenant in ("south", "west", "default"):
            assert Visitor(served, Cookie=cookie_of(ada).replace("north", tenant)).ask("/me")[0] == 401
    assert {path.name for path in (tmp_path / "state" / "tenants").iterdir()} == {"north", "south"}
    # The north is a tenant no more.
    with Stateful(tmp_path / "state", tokens=tokens[1:], clock=clock, partitions=1) as served:
        assert [Visitor(served, Cookie=cookie_of(one)).ask("/me")[0] for one in (ada, other)] == [401, 200]


def test_every_session_and_link_can_be_ended_by_the_person_and_by_the_host(served):
    zero, one, two, other = (Visitor(served).sign_in(name) for name in ("ada", "ada", "ada", "bob"))
    key, cookie = key_of(served, "ada"), cookie_of(zero)
    assert zero.post("/me/out")[0] == 200 and zero.ask("/me")[0] == 401
    assert Visitor(served, Cookie=cookie).ask("/me")[0] == 401 and one.ask("/me")[0] == two.ask("/me")[0] == 200
    assert one.post("/me/out_everywhere")[0] == 200
    assert [visitor.ask("/me")[0] for visitor in (one, two, other)] == [401, 401, 200]
    assert Visitor(served).ask("/me/link", {"key": key})[0] == 410
    Visitor(served).sign_in("bob")
    key_of(served, "bob")
    assert served.ask("/v1/people/bob/link", method="DELETE")[1] == {"ended": 3}
    assert other.ask("/me")[0] == 401


def test_a_cookie_that_another_host_has_set_beside_is_none(served):
    """Its name begins with what some programs take for a blank, or it stands there twice."""
    mine, planted = cookie_of(Visitor(served).sign_in("ada")), cookie_of(Visitor(served).sign_in("eve"))
    for header in (f"{mine}; \xa0{planted}", f"{mine}; \x85{planted}", f"\xa0{planted}; {mine}"):
        status, page, _ = Visitor(served, Cookie=header).ask("/me")
        assert status == 200 and ">ada<" in page
    assert Visitor(served, Cookie=f"{mine}; {planted}").ask("/me")[0] == 401


@pytest.mark.parametrize("cost", [1e15, 1e-15])
def test_costs_at_their_bounds_have_a_preview(cost, served):
    decide(served, "ada", 0.9, 0.9, costs={"c_fa": cost, "c_fn": 1.0})
    assert Visitor(served).sign_in("ada").page.count('name="level"') == len(LEVELS)


def test_what_nobody_foresaw_is_a_page_that_names_nobody(served, monkeypatch, capfd):
    ada = Visitor(served).sign_in("ada")

    def broken(*_, **__):
        raise RuntimeError("canary")

    monkeypatch.setattr(person_page, "read_latest", broken)
    status, page, headers = ada.ask("/me")
    assert status == 500 and "Nobody knows whether anything was changed" in page and "canary" not in page
    assert "default-src 'none'" in headers["content-security-policy"]
    said = capfd.readouterr().err
    assert "RuntimeError in a page" in said and "canary" not in said


def test_neither_counts_nor_refusals_name_anybody(served):
    key = key_of(served, "canary")
    Visitor(served).ask(f"/me/link?key={key}")
    assert Visitor(served).ask("/me/canary")[0] == 404
    Visitor(served).sign_in("canary").post("/me/level", level="1")
    text = counts(served)
    assert "canary" not in text and key not in text
    assert 'prism_requests_total{route="/me/link",status="303"} 1.0' in text
    assert 'route="/v1/people/{person:name}/link"' in text
