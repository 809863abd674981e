"""The page of the person over HTTP: who gets in, what a change changes, what is shown, and what is gone in the end."""

import concurrent.futures
import datetime
import json
import math
import pathlib
import re
import urllib.parse
import urllib.request
import zoneinfo

import pytest

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from served import Stateful
from visitor import COSTS, Clock, Visitor, decide, key_of, live

from prism_jax.agent.settings import AgentSettings, Budget, Critical, Exploration, Terms
from prism_jax.agent.state.preferences import LEVELS
from prism_jax.agent.state.preview import Preview
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.service import person_page, person_view

SETTINGS = AgentSettings(Terms(OperatingPoint(c_fa=1.0, c_fn=1.0)), critical=Critical(texts=frozenset({"stated"})))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def served(tmp_path, clock):
    with Stateful(tmp_path / "state", clock=clock) as running:
        yield running.ready()


def records(served, **query):
    query = urllib.parse.urlencode({"limit": 1000, **query})
    return served.ask(f"/v1/records?{query}")[1]["records"]


def cookie_of(visitor):
    return next(f"prism-me={one.value}" for one in visitor.cookies if one.name == "prism-me")


def offer_numbers(page):
    return re.findall(r'name="number" value="([0-9]+)"', page)


# Who gets in


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


def test_signing_out_ends_the_session_everywhere(served):
    ada = Visitor(served).sign_in("ada")
    cookie = "; ".join(f"{one.name}={one.value}" for one in ada.cookies)
    assert ada.post("/me/out")[0] == 200 and ada.ask("/me")[0] == 401
    assert Visitor(served, Cookie=cookie).ask("/me")[0] == 401


def test_a_form_of_another_page_changes_nothing(served):
    decide(served, "ada", 0.9, 0.9)
    ada, eve = Visitor(served).sign_in("ada"), Visitor(served).sign_in("eve")
    token, own = eve.form_token, {"Origin": served.url}
    for fields, headers in (
        ({}, {}),
        ({"form_token": token}, {}),
        ({"form_token": "é\ud800"}, {}),
        ({"form_token": ada.form_token}, {"Sec-Fetch-Site": "cross-site"}),
        ({"form_token": ada.form_token}, {"Sec-Fetch-Site": "same-site"}),
        ({"form_token": ada.form_token}, {"Sec-Fetch-Site": "none"}),
        ({"form_token": ada.form_token}, {"Origin": "https://evil.example"}),
        ({"form_token": ada.form_token}, {"Sec-Fetch-Site": None, "Origin": "null"}),
        ({"form_token": ada.form_token}, {"Sec-Fetch-Site": None}),
    ):
        for path in ("level", "silence", "hours", "outcome", "reset", "forget", "out"):
            every = {
                "level": "2",
                "for": "week",
                "end_now": "1",
                "outcome": "accepted",
                "number": "1",
                "word": "forget",
            }
            assert ada.ask(f"/me/{path}", {**every, **fields}, **headers)[0] == 403, (path, fields, headers)
    stranger = Visitor(served, **{"Sec-Fetch-Site": "cross-site"})
    assert stranger.ask("/me/link", {"key": key_of(served, "ada")})[0] == 403
    assert ada.ask("/me")[0] == 200 and re.search(r'value="0" checked', ada.page)
    right = {"level": "2", "form_token": ada.form_token}
    assert ada.ask("/me/level", right, **own)[0] == 303
    assert ada.ask("/me/level", right, **own, **{"Sec-Fetch-Site": None})[0] == 303


def test_every_answer_forbids_what_a_page_does_not_need(served):
    ada = Visitor(served).sign_in("ada")
    paths = ("/me", "/me/link?key=none", "/me/page.css", "/me/page.js", "/me/icon.svg", "/me/export", "/me/forget")
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


def test_nobody_sees_another_person_or_tenant(tmp_path, clock):
    tokens = [("north", "first-token"), ("south", "second-token")]
    north, south = {"authorization": "Bearer first-token"}, {"authorization": "Bearer second-token"}
    with Stateful(tmp_path / "state", tokens=tokens, clock=clock, partitions=1) as served:  # so that numbers meet
        served.ready()
        assert served.ask("/v1/people/ada/link", b"")[0] == 401
        asked = {"stream": "s", "time": 0, "p_need": 0.9, "p_accept": [0.9], "costs": COSTS, "person": "ada"}
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
    with Stateful(
        tmp_path / "state", tokens=tokens[1:], clock=clock, partitions=1
    ) as served:  # the north is a tenant no more
        assert [Visitor(served.ready(), Cookie=cookie_of(one)).ask("/me")[0] for one in (ada, other)] == [401, 200]


def test_every_session_and_link_can_be_ended_by_the_person_and_by_the_host(served):
    one, two, other = (Visitor(served).sign_in(name) for name in ("ada", "ada", "bob"))
    key = key_of(served, "ada")
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


def test_no_page_with_scripts_of_others_stands_beside_this_one(served):
    assert [served.ask(path)[0] for path in ("/docs", "/redoc", "/docs/oauth2-redirect")] == [404] * 3


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
    with urllib.request.urlopen(served.url + "/metrics") as answer:
        text = answer.read().decode()
    assert "canary" not in text and key not in text
    assert 'prism_requests_total{route="/me/link",status="303"} 1.0' in text
    assert 'route="/v1/people/{person:path}/link"' in text


# What a change changes


def optimism(c_fa, variance):
    """What the gate adds to the log-odds for doubt about a person, where c_fn is 1 and silence therefore cheap."""
    return min(0.5, 0.25 * c_fa) * math.sqrt(variance) if c_fa >= 1 else 0.0


@pytest.mark.parametrize("level", LEVELS)
def test_the_slider_moves_later_thresholds_exactly_as_its_costs_say(served, level):
    """With c_fn = 1 and need p the gate offers from c / (c + p) on, less its optimism about somebody unknown."""
    ada = Visitor(served).sign_in("ada")
    assert ada.post("/me/level", level=str(level))[2]["location"] == "/me?done=level#level"
    for stream, person, cost in (("a", "ada", 2.0**-level), ("b", "bob", 1.0)):
        odds = math.log(cost / 0.8) - optimism(cost, 0.6**2)
        found = decide(served, person, 0.8, 0.5, stream=stream)["threshold"]
        assert found == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-12)
        assert records(served, person=person)[-1]["costs"] == {"c_fa": cost, "c_fn": 1.0}
    assert re.search(rf'value="{level}" checked', ada.ask("/me")[1])


def test_the_page_previews_what_the_gate_decides_again_on_every_record(served, clock):
    """By brute force: the records' own numbers, under costs that the step changes, without budgets or chance."""
    live(served, clock, "ada")
    kept = records(served, person="ada", since=clock.now - 7 * 86400)
    accepted = {one["offer"] for one in kept if one["kind"] == "outcome" and one["outcome"] == "accepted"}
    decisions = [one for one in kept if one["kind"] == "decision"]
    assert len(decisions) == 98 and len(accepted) > 10
    ada = Visitor(served).sign_in("ada")
    shown = dict(zip(LEVELS, re.findall(r"<small>(.*?)</small>", ada.page), strict=True))
    for level in LEVELS:
        would = {one["event"]: offers(one, 2.0**-level) for one in decisions}
        fewer = [one for one in decisions if one["spoke"] and not would[one["event"]]]
        more = [one for one in decisions if would[one["event"]] and not one["spoke"]]
        lost, expected = sum(one["offer"] in accepted for one in fewer), sum(one["p_accept"] for one in more)
        made = sum(one["spoke"] for one in decisions)
        assert shown[level] == person_view.sentence(Preview(98, made, len(fewer), lost, len(more), expected)), level
        assert level == 0 or (fewer if level < 0 else more), "the week says something of each step"
    decide(served, "ada", 0.9, 0.9, stream="new")
    assert "the 98 newest decisions" in ada.page and "the 99 newest decisions" in ada.ask("/me")[1]


def offers(record, c_fa):
    """Whether the gate offers at a cost, on what was known of the person then."""
    odds = record["p_accept"] / (1 - record["p_accept"]) * math.exp(optimism(c_fa, record["person"]["variance"]))
    accept = odds / (1 + odds)
    return (1 - accept) * c_fa <= accept * record["p_need"] * record["costs"]["c_fn"]


def test_a_snooze_a_mute_and_quiet_hours_are_silence_until_they_end(tmp_path, clock):
    def silent(because=None):
        answer = decide(served, "ada", 0.95, 0.95, time=clock.now, stream="s")
        assert answer["speak"] is (because is None) and (because is None or answer["reason"] == f"silent: {because}")

    with Stateful(tmp_path / "state", clock=clock) as served:
        ada = Visitor(served.ready()).sign_in("ada")
        paris, begin = zoneinfo.ZoneInfo("Europe/Paris"), clock.now
        morning = datetime.datetime(2026, 11, 27, 8, tzinfo=paris).timestamp()
        ends = {"1h": 3600, "4h": 4 * 3600, "morning": morning - begin, "week": 7 * 86400, "month": 30 * 86400}
        for wanted, seconds in ends.items():
            begin = clock.now
            assert ada.post("/me/silence", **{"for": wanted, "zone": "Europe/Paris"})[0] == 303
            seconds = seconds if wanted != "morning" else next_morning(begin, paris) - begin
            clock.now = begin + seconds - 1
            silent("snoozed" if wanted in ("1h", "4h", "morning") else "muted")
            clock.now += 1
            silent()
            ada = Visitor(served).sign_in("ada")
        ada.post("/me/silence", **{"for": "month"})
        assert re.search("Muted</strong> until", ada.ask("/me")[1])
        ada.post("/me/silence", **{"for": "end"})
        silent()
        clock.now = datetime.datetime(2027, 2, 3, 12, tzinfo=paris).timestamp()
        ada = Visitor(served).sign_in("ada")
        hours = {"begin": "22:00", "end": "07:00", "zone": "Europe/Paris", "last_day": "2027-02-04"}
        assert ada.post("/me/hours", **hours)[0] == 303
        assert "22:00 to 07:00, Europe/Paris, up to and including 4 February 2027" in ada.ask("/me")[1]
        for day, hour, quiet in ((3, 21, 0), (3, 22, 1), (4, 6, 1), (4, 7, 0), (4, 23, 1), (5, 0, 0), (5, 6, 0)):
            clock.now = datetime.datetime(2027, 2, day, hour, 59 * (1 - quiet), tzinfo=paris).timestamp()
            silent("quiet hours" if quiet else None)
        clock.now = datetime.datetime(2027, 2, 5, 12, tzinfo=paris).timestamp()
        ada.post("/me/level", level="2")
        ada.post("/me/hours", **{**hours, "begin": "11:00", "end": "13:00", "last_day": "2027-03-01"})
        silent("quiet hours")
        ada.post("/me/silence", **{"for": "1h"})
        silent("snoozed")
        ada.post("/me/silence", **{"for": "end"})
        silent("quiet hours")
        ada.post("/me/hours", end_now="1")
        silent()
        assert re.search('value="2" checked', ada.ask("/me")[1])  # a change leaves the others as they are


def next_morning(now, zone):
    day = datetime.datetime.fromtimestamp(now, zone).date() + datetime.timedelta(days=1)
    return datetime.datetime(day.year, day.month, day.day, 8, tzinfo=zone).timestamp()


def test_what_is_urgent_comes_through_and_the_page_says_so(tmp_path, clock):
    with Stateful(tmp_path / "state", clock=clock, settings=SETTINGS) as served:
        ada = Visitor(served.ready()).sign_in("ada")
        ada.post("/me/silence", **{"for": "week"})
        event = {"time": 0.0, "text": "stated", "person": "ada"}
        assert served.ask("/v1/streams/s/events", event)[1]["speak"]
        assert "still come through" in ada.ask("/me")[1] and "list of urgent things, which always" in ada.page


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("level", {}),
        ("level", {"level": "3"}),
        ("level", {"level": "1.5"}),
        ("silence", {}),
        ("silence", {"for": "ever"}),
        ("hours", {}),
        ("hours", {"begin": "22:00", "end": "22:00", "zone": "UTC", "last_day": "2027-01-01"}),
        ("hours", {"begin": "25:00", "end": "07:00", "zone": "UTC", "last_day": "2027-01-01"}),
        ("hours", {"begin": "22:00", "end": "07:00", "zone": "../../etc/passwd", "last_day": "2027-01-01"}),
        ("hours", {"begin": "22:00", "end": "07:00", "zone": "UTC", "last_day": "2020-01-01"}),
        ("hours", {"begin": "22:00", "end": "07:00", "zone": "UTC", "last_day": "9999-12-31"}),
        ("outcome", {"number": "1", "outcome": "eaten"}),
        ("outcome", {"number": "²", "outcome": "accepted"}),
        ("outcome", {"number": "9" * 30, "outcome": "accepted"}),
        ("forget", {"word": "no"}),
    ],
)
def test_what_cannot_be_taken_is_said_on_the_page(served, path, fields):
    ada = Visitor(served).sign_in("ada")
    before = re.sub('name="form_token"', "", ada.page)
    status, page, _ = ada.post(f"/me/{path}", **fields)
    assert status == 422 and 'role="alert"' in page
    assert re.sub('name="form_token"', "", ada.ask("/me")[1]) == before


def test_an_answer_is_an_outcome_that_counts_once(served, clock):
    first = decide(served, "ada", 0.9, 0.9, time=5.0)
    decide(served, "ada", 0.1, 0.1, time=50.0)
    ada, other = Visitor(served).sign_in("ada"), Visitor(served).sign_in("ada")
    (number,) = offer_numbers(ada.page)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # a double click
        pressed = [pool.submit(one.post, "/me/outcome", number=number, outcome="dismissed") for one in (ada, other)]
        assert [press.result()[0] for press in pressed] == [303, 303]
    decide(served, "ada", 0.1, 0.1, time=90.0)
    assert ada.post("/me/outcome", number=number, outcome="dismissed")[0] == 303
    status, page, _ = ada.post("/me/outcome", number=number, outcome="accepted")
    assert status == 409 and "judged before" in page
    outcomes = [one for one in records(served) if one["kind"] == "outcome"]
    kept = {"outcome": "dismissed", "offer": first["id"], "time": 50.0, "needed": None, "stream": "chat"}
    assert [{key: one[key] for key in kept} for one in outcomes] == [kept]
    assert "You did not find it useful." in ada.ask("/me")[1] and not offer_numbers(ada.page)
    assert re.search("<dt>Answers of yours</dt><dd>1</dd>", ada.page)


# What is shown


def test_reasons_are_words_for_what_the_record_has(tmp_path, clock):
    point = OperatingPoint(c_fa=1.0, c_fn=1.0)
    terms = Terms(point, offers=Budget(1, 3600.0), exploration=Exploration(0.5, loss=0.2, seed=1))
    with Stateful(tmp_path / "state", clock=clock, settings=AgentSettings(terms)) as served:
        ada = Visitor(served.ready()).sign_in("ada")
        for i in range(12):
            decide(served, "ada", 0.8, 0.5 if i else 0.9, time=4000.0 * (i + 1), stream="chance")
        decide(served, "ada", 0.9, 0.9, stream="budget", time=0.0)
        decide(served, "ada", 0.9, 0.9, stream="budget", time=1.0)
        decide(served, "ada", 0.9, 0.05, stream="low")
        decide(served, "ada", 0.9, 0.9, stream="busy", costs={**COSTS, "quiet": "busy"})
        decide(served, "ada", 0.9, 0.9, stream="fixed", costs={**COSTS, "policy": "never"})
        kept = {(one["stream"], one["event"]): person_view.reason(one) for one in records(served)}
        assert kept["budget", 1] == "There had been enough offers for the time being."
        assert re.fullmatch("5 % likely to be welcome; it takes [45][0-9] %.", kept["low", 0])
        assert kept["busy", 0] == "You seemed to be busy."
        assert kept["fixed", 0] == "Whoever set it up wants it to stay silent."
        by_chance = [one for one in records(served) if one["kind"] == "decision" and one["explored"]]
        assert by_chance and all("Left to chance" in person_view.reason(one) for one in by_chance)
        page = ada.ask("/me")[1]
        assert all(text in page for text in set(kept.values())) and "silent: " not in page


def test_a_host_that_decides_itself_is_said_to_do_so(tmp_path, clock):
    with Stateful(tmp_path / "state", clock=clock, shadow=True) as served:
        served.ready()
        decide(served, "ada", 0.9, 0.1, spoke=True)
        page = Visitor(served).sign_in("ada").page
        assert "Decided by the app itself; the assistant would have done otherwise." in page


def test_today_is_the_persons_own_day(served, clock):
    paris = zoneinfo.ZoneInfo("Europe/Paris")
    for day, hour in ((25, 23), (26, 0), (26, 17)):
        clock.now = datetime.datetime(2026, 11, day, hour, 30, tzinfo=paris).timestamp()
        decide(served, "ada", 0.9, 0.9, time=clock.now, text=f"at {day} {hour}")
    ada = Visitor(served).sign_in("ada")  # in Paris
    assert re.findall("at 2[56] [0-9]+", re.sub('<span class="unseen">.*?</span>', "", ada.page)) == [
        "at 26 17",
        "at 26 0",
    ]
    assert "2 offers today" in ada.page and ">17:30</time>" in ada.page
    nowhere = Visitor(served, Cookie=cookie_of(ada))
    assert "3 offers in the last 24 hours" in nowhere.ask("/me")[1] and ">16:30</time>" in nowhere.page
    tokyo = Visitor(served, Cookie=nowhere.headers["Cookie"] + "; zone=Asia/Tokyo")
    assert "1 offer today" in tokyo.ask("/me")[1]


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202ebad\u2066\x1b[2J\x00\u2028",
    "{{ 7 * 7 }}{% raw %}",
    "y" * 500_000,
    "\U0001f600 \u0645\u0631\u062d\u0628\u0627",
)


def test_hostile_texts_and_names_are_inert_and_short(served, clock):
    for i, text in enumerate(HOSTILE):
        name = text[:900]
        answer = decide(served, name, 0.9, 0.9, text=text, stream=f"s{i}{name}", time=float(i))
        assert answer["speak"]
        page = Visitor(served).sign_in(name).page
        assert len(page) < 60_000 and not re.search("<script>|<img", page)
        assert not re.search("[\x00-\x08\x0e-\x1f\u202a-\u202e\u2066-\u2069\u2028\ud800-\udfff]", page)
        (shown,) = re.findall(r'<p class="what"><bdi dir="auto">(.*?)</bdi></p>', page)
        assert len(shown) < 400


def test_many_decisions_are_folded_and_bounded(served, clock):
    for i in range(30):
        served.ask("/v1/decide", {"stream": "s", "person": "ada", "time": i, "p_need": 0.1, "p_accept": 0.1})
    decide(served, "ada", 0.9, 0.9, stream="s", time=40.0)
    page = Visitor(served).sign_in("ada").page
    assert "Silent 30 times" in page and "It kept quiet 30 times" in page and page.count('class="silent"') == 30


# What is gone in the end


def test_a_reset_forgets_what_was_learnt_and_nothing_else(served, clock, tmp_path):
    live(served, clock, "ada", days=2)
    before = records(served)
    ada = Visitor(served).sign_in("ada")
    fresh = {"stream": "new", "time": 0.0, "person": "ada"}
    moved = decide(served, "ada", 0.9, 0.8, **{key: fresh[key] for key in ("stream", "time")})["p_accept"]
    assert moved != pytest.approx(0.8, abs=1e-6) and "Nothing was learnt" not in ada.page
    ada.post("/me/level", level="1")
    assert ada.post("/me/reset")[0] == 303
    assert "Nothing was learnt of you yet" in ada.ask("/me")[1] and re.search('value="1" checked', ada.page)
    assert decide(served, "ada", 0.9, 0.8, stream="newer")["p_accept"] == pytest.approx(0.8, abs=0.02)
    assert records(served)[: len(before)] == before


def test_an_export_has_everything_of_theirs_and_of_nobody_else(served, clock):
    live(served, clock, "ada", days=2)
    decide(served, "bob", 0.9, 0.9, text="bob's secret", stream="b")
    ada = Visitor(served).sign_in("ada")
    ada.post("/me/level", level="-1")
    status, text, headers = ada.ask("/me/export")
    assert status == 200 and headers["content-disposition"].startswith("attachment")
    found = json.loads(text)
    assert [one["record"] for one in found["records"]] == records(served, person="ada")
    assert found["preferences"]["level"] == -1 and found["learnt"]["answers"] > 0 and found["person"] == "ada"
    assert [one["event"] for one in found["events"]] == list(range(28)) and "bob" not in text


def test_after_forgetting_no_file_has_anything_of_theirs(tmp_path, clock):
    with Stateful(tmp_path / "state", clock=clock) as served:
        served.ready()
        for person in ("canary-ada", "bob"):
            decide(served, person, 0.9, 0.9, text=f"offer for {person}", stream=f"stream of {person}")
        ada, link = Visitor(served).sign_in("canary-ada"), key_of(served, "canary-ada")
        ada.post("/me/hours", begin="22:00", end="07:00", zone="Pacific/Chatham", last_day="2027-01-01")
        ada.post("/me/outcome", number=offer_numbers(ada.ask("/me")[1])[0], outcome="accepted")
        assert [one for one in pathlib.Path(tmp_path).rglob("*") if one.is_file() and b"canary" in one.read_bytes()]
        assert "Type <strong>forget</strong>" in ada.ask("/me/forget")[1]
        cookie = "; ".join(f"{one.name}={one.value}" for one in ada.cookies)
        status, page, headers = ada.post("/me/forget", word=" Forget ")
        assert status == 200 and "deleted" in page and 'prism-me="";' in headers["set-cookie"]
        assert Visitor(served, Cookie=cookie).ask("/me")[0] == 401
        assert Visitor(served).ask("/me/link", {"key": link})[0] == 410
        assert [one["stream"] for one in records(served)] == ["stream of bob"]
        files = [path for path in pathlib.Path(tmp_path).rglob("*") if path.is_file()]
        assert files and not [path for path in files if re.search(b"canary|Chatham", path.read_bytes())]
        again = Visitor(served).sign_in("canary-ada").page
        assert "Nothing has happened yet." in again and "no event yet" in again


def test_a_change_whose_session_has_ended_meanwhile_is_none(served, monkeypatch):
    """Such as one that a deletion has overtaken, after which nothing of the person may come back."""
    from prism_jax.service.sessions import Sessions

    ada = Visitor(served).sign_in("ada")
    posted = Sessions.posted

    async def overtaken(self, request):
        found = await posted(self, request)
        from prism_jax.service.agents import DECIDE, forget

        await self._ask(request, DECIDE, forget("ada"))
        return found

    token = ada.form_token
    monkeypatch.setattr(Sessions, "posted", overtaken)
    assert ada.ask("/me/level", {"level": "2", "form_token": token})[0] == 401
    monkeypatch.undo()
    assert re.search('value="0" checked', Visitor(served).sign_in("ada").page)


def test_levels_have_words_for_every_preview():
    """What a step takes and gives: fewer and lost, more and expected."""
    zero = Preview(10, 5, 0, 0, 0, 0.0)
    cases = {
        zero._replace(decisions=0): "There was nothing to decide on in the last 7 days.",
        zero: "Nothing would have changed: 5 offers.",
        zero._replace(fewer=3, lost=1): "3 fewer offers, 1 that you accepted lost.",
        zero._replace(fewer=1): "1 fewer offer, none that you accepted lost.",
        zero._replace(more=2, expected=1.2): "2 more offers, about 1 of which you would have accepted.",
        zero._replace(more=1, expected=0.2): "1 more offer, hardly any that you would have accepted.",
    }
    assert {case: person_view.sentence(case) for case in cases} == cases
