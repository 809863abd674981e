"""The page of the person over HTTP: what a change changes, what is shown, and what is gone in the end."""

import concurrent.futures
import datetime
import json
import math
import re
import zoneinfo

import pytest
from batches import holding

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from visitor import COSTS, Visitor, cookie_of, decide, key_of, live, offer_numbers, records

from prism_jax.agent.service import person_view
from prism_jax.agent.settings import AgentSettings, Budget, Critical, Exploration, Terms
from prism_jax.agent.state.preferences import LEVELS, Preview
from prism_jax.decision.operating_point import OperatingPoint

SETTINGS = AgentSettings(Terms(OperatingPoint(c_fa=1.0, c_fn=1.0)), critical=Critical(texts=frozenset({"stated"})))


HOURS = {"begin": "22:00", "end": "07:00", "zone": "UTC", "last_day": "2027-01-01"}


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


def test_a_snooze_a_mute_and_quiet_hours_are_silence_until_they_end(served, clock):
    def silent(because=None):
        answer = decide(served, "ada", 0.95, 0.95, time=clock.now, stream="s")
        assert answer["speak"] is (because is None) and (because is None or answer["reason"] == f"silent: {because}")

    paris, ada = zoneinfo.ZoneInfo("Europe/Paris"), Visitor(served).sign_in("ada")
    # It is 18:00, and after one and four hours 23:00, nine hours before the morning.
    for wanted, hours in {"1h": 1, "4h": 4, "morning": 9, "week": 7 * 24, "month": 30 * 24}.items():
        begin = clock.now
        assert ada.post("/me/silence", **{"for": wanted, "zone": "Europe/Paris"})[0] == 303
        clock.now = begin + hours * 3600 - 1
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


def test_what_is_urgent_comes_through_and_the_page_says_so(start, clock):
    served = start(clock=clock, settings=SETTINGS)
    ada = Visitor(served).sign_in("ada")
    ada.post("/me/silence", **{"for": "week"})
    event = {"time": 0.0, "text": "stated", "person": "ada"}
    assert served.ask("/v1/streams/s/events", event)[1]["speak"]
    assert "still come through" in ada.ask("/me")[1] and "list of urgent things, which always" in ada.page


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        *((path, {}) for path in ("level", "silence", "hours")),
        *(("level", {"level": level}) for level in ("3", "1.5")),
        ("silence", {"for": "ever"}),
        *(("hours", HOURS | change) for change in ({"end": "22:00"}, {"begin": "25:00"}, {"zone": "../../etc/passwd"})),
        *(("hours", HOURS | {"last_day": day}) for day in ("2020-01-01", "9999-12-31")),
        ("outcome", {"number": "1", "outcome": "eaten"}),
        *(("outcome", {"number": number, "outcome": "accepted"}) for number in ("²", "9" * 30)),
        ("forget", {"word": "no"}),
    ],
)
def test_what_cannot_be_taken_is_said_on_the_page(untouched, path, fields):
    ada = Visitor(untouched).sign_in("ada")
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


def test_reasons_are_words_for_what_the_record_has(start, clock):
    point = OperatingPoint(c_fa=1.0, c_fn=1.0)
    terms = Terms(point, offers=Budget(1, 3600.0), exploration=Exploration(0.5, loss=0.2, seed=1))
    served = start(clock=clock, settings=AgentSettings(terms))
    for i in range(12):
        decide(served, "ada", 0.8, 0.5 if i else 0.9, time=4000.0 * (i + 1), stream="chance")
    for i in range(2):
        decide(served, "ada", 0.9, 0.9, stream="budget", time=float(i))
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
    page = Visitor(served).sign_in("ada").page
    assert all(text in page for text in set(kept.values())) and "silent: " not in page


def test_a_host_that_decides_itself_is_said_to_do_so(clock, start):
    served = start(clock=clock, shadow=True)
    decide(served, "ada", 0.9, 0.1, spoke=True)
    decide(served, "ada", 0.9, 0.95, time=1.0, spoke=False)
    page = Visitor(served).sign_in("ada").page
    for otherwise in ("kept quiet", "made an offer"):
        assert f"By the app itself; the assistant would have {otherwise}." in page
    assert "1 offer today" in page and "The app itself made 2 of these decisions" in page
    assert "it would have made 1 offer." in page


def test_today_is_the_persons_own_day(served, clock):
    paris = zoneinfo.ZoneInfo("Europe/Paris")
    for day, hour in ((25, 23), (26, 0), (26, 17)):
        clock.now = datetime.datetime(2026, 11, day, hour, 30, tzinfo=paris).timestamp()
        decide(served, "ada", 0.9, 0.9, time=clock.now, text=f"at {day} {hour}")
    ada = Visitor(served).sign_in("ada")  # in Paris
    shown = re.findall("at 2[56] [0-9]+", re.sub('<span class="unseen">.*?</span>', "", ada.page))
    assert shown == ["at 26 17", "at 26 0"]
    assert "2 offers today" in ada.page and ">17:30</time>" in ada.page
    nowhere = Visitor(served, Cookie=cookie_of(ada))
    assert "3 offers in the last 24 hours" in nowhere.ask("/me")[1] and ">16:30</time>" in nowhere.page
    tokyo = Visitor(served, Cookie=nowhere.headers["Cookie"] + "; zone=Asia/Tokyo")
    assert "1 offer today" in tokyo.ask("/me")[1]


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202ebad\u2066\x1b[2J\x00\u2028.",
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


def test_a_long_day_shows_the_newest_and_folds_the_rest(served, clock):
    for i in range(12):
        decide(served, "eve", 0.9, 0.1 + 0.8 * (i % 3 > 0), stream="long", time=float(i))
    shown, _, earlier = Visitor(served).sign_in("eve").page.partition('<details class="earlier">')
    assert re.search(r"<summary>Earlier, from \d\d:\d\d: 2 offers, silent 2 times</summary>", earlier)
    assert [part.count('name="outcome" value="accepted"') for part in (shown, earlier)] == [6, 2]


# What is gone in the end


def test_a_reset_forgets_what_was_learnt_and_nothing_else(served, clock):
    live(served, clock, "ada", days=2)
    before = records(served)
    ada = Visitor(served).sign_in("ada")
    moved = decide(served, "ada", 0.9, 0.8, stream="new")["p_accept"]
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
    outcomes = sum(one["record"]["kind"] == "outcome" for one in found["records"])
    assert found["counts"] == {"streams": 1, "events": 28, "decisions": 28, "outcomes": outcomes} and outcomes > 0
    assert found["since"] == min(one["written"] for one in found["records"])
    assert served.ask("/v1/people/ada")[:2] == (200, found), "the host is told the same"
    assert served.ask("/v1/people/nobody")[0] == 404
    assert served.ask("/v1/people/ada?since=1")[0] == 422


def test_after_forgetting_no_file_has_anything_of_theirs(tmp_path, served):
    for person in ("canary-ada", "bob"):
        decide(served, person, 0.9, 0.9, text=f"offer for {person}", stream=f"stream of {person}")
    ada, link = Visitor(served).sign_in("canary-ada"), key_of(served, "canary-ada")
    ada.post("/me/hours", begin="22:00", end="07:00", zone="Pacific/Chatham", last_day="2027-01-01")
    ada.post("/me/outcome", number=offer_numbers(ada.ask("/me")[1])[0], outcome="accepted")
    assert holding(tmp_path)
    assert "Type <strong>forget</strong>" in ada.ask("/me/forget")[1]
    cookie = "; ".join(f"{one.name}={one.value}" for one in ada.cookies)
    status, page, headers = ada.post("/me/forget", word=" Forget ")
    assert status == 200 and "deleted" in page and 'prism-me="";' in headers["set-cookie"]
    assert Visitor(served, Cookie=cookie).ask("/me")[0] == 401
    assert Visitor(served).ask("/me/link", {"key": link})[0] == 410
    assert [one["stream"] for one in records(served)] == ["stream of bob"]
    assert holding(tmp_path, b"bob") and not holding(tmp_path, b"canary|Chatham")
    assert served.ask("/v1/people/canary-ada/link", b"")[0] == 404, "nothing leads back"
    again = Visitor(served).sign_in("canary-ada").page
    assert "offer for" not in again and len(records(served, person="canary-ada")) == 1


def test_a_change_whose_session_has_ended_meanwhile_is_none(served, monkeypatch):
    """Such as one that a deletion has overtaken, after which nothing of the person may come back."""
    from prism_jax.agent.service.sessions import Sessions

    ada = Visitor(served).sign_in("ada")
    posted = Sessions.posted

    async def overtaken(self, request):
        found = await posted(self, request)
        from prism_jax.agent.service.agents import DECIDE, forget

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
        zero: "Nothing would have changed: 5 offers with the present settings.",
        zero._replace(fewer=3, lost=1): "3 fewer offers, 1 that you accepted lost.",
        zero._replace(fewer=1): "1 fewer offer, none that you accepted lost.",
        zero._replace(more=2, expected=1.2): "2 more offers, about 1 of which you would have accepted.",
        zero._replace(more=1, expected=0.2): "1 more offer, hardly any that you would have accepted.",
    }
    assert {case: person_view.sentence(case) for case in cases} == cases
