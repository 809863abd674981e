"""A browser without scripts, for tests of the person's page, and a made-up day to look at."""

import http.cookiejar
import random
import re
import urllib.error
import urllib.parse
import urllib.request

OFFERS = (
    "Shall I move the 15:00 review? It overlaps with your flight to Lyon.",
    "The build has failed three times on the same test. Want the log lines that differ?",
    "Anna asked for the contract on Monday. Shall I draft an answer?",
    "You pasted the same address twice. Fill in the rest of the form?",
    "Your battery is at 9 % and the call lasts an hour. Remind you to plug in?",
    "Two invoices have the same number. Look at both?",
    "You have two meetings about the same topic tomorrow. Merge them?",
    "The draft says 2025 in the title and 2026 in the text. Shall I correct it?",
    "Your parcel waits at the shop until Saturday. Put it on the way home?",
    "This query reads the whole table. Shall I look for an index?",
    "Ben has sent three questions since noon. Summarise them?",
    "The train at 18:04 is cancelled; the next one leaves at 18:21. Change the reminder?",
)


class Stay(urllib.request.HTTPRedirectHandler):
    """Leads nowhere, so that a test sees where a page leads."""

    def redirect_request(self, *_):
        return None


class Visitor:
    """Somebody with a browser; `page` is the last that was seen."""

    def __init__(self, served, **headers):
        self.served, self.page, self.headers = served, "", {"Sec-Fetch-Site": "same-origin", **headers}
        self.cookies = http.cookiejar.CookieJar()
        handlers = urllib.request.HTTPCookieProcessor(self.cookies), Stay
        self.opener = urllib.request.build_opener(*handlers)

    def ask(self, path, fields=None, **headers):
        """Status, text and headers of an answer."""
        data = None if fields is None else urllib.parse.urlencode(fields, errors="surrogatepass").encode()
        sent = {name: value for name, value in {**self.headers, **headers}.items() if value is not None}
        url = path if path.startswith("http") else self.served.url + path
        try:
            with self.opener.open(urllib.request.Request(url, data, sent), timeout=20) as answer:
                status, body, found = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            status, body, found = error.code, error.read(), error.headers
        self.page = body.decode()
        return status, self.page, found

    def sign_in(self, person, **headers):
        """Opens a person's page by a link of the host."""
        key = key_of(self.served, person, **headers)
        status, _, found = self.ask("/me/link", {"key": key, "zone": "Europe/Paris"})
        assert (status, found["location"]) == (303, "/me")
        assert self.ask("/me")[0] == 200
        return self

    @property
    def form_token(self):
        return re.findall(r'name="form_token" value="([0-9a-f]{64})"', self.page)[0]

    def post(self, path, **fields):
        """Sends a form of the page; status, text and headers of the answer."""
        if "form_token" not in fields:
            assert self.ask("/me")[0] == 200
            fields["form_token"] = self.form_token
        return self.ask(path, fields)


def key_of(served, person, **headers):
    """The key of a new link for a person, of whom a silence is kept where nothing was."""
    path = f"/v1/people/{urllib.parse.quote(person, safe='')}/link"
    status, answer, _ = served.ask(path, b"", **headers)
    if status == 404:
        silence = {"stream": f"first of {person}", "person": person, "time": 0.0, "p_need": 0.0, "p_accept": 0.0}
        assert served.ask("/v1/decide", silence, **headers)[0] == 200
        status, answer, _ = served.ask(path, b"", **headers)
    assert status == 200, answer
    (key,) = urllib.parse.parse_qs(urllib.parse.urlsplit(answer["url"]).query)["key"]
    return key


COSTS = {"c_fa": 1.0, "c_fn": 1.0}


def stated(stream, need=0.9, accept=0.9, time=0.0, **more):
    """The body of a question about numbers that the host states; by itself, an offer."""
    return {"stream": stream, "time": time, "p_need": need, "p_accept": accept, "costs": COSTS, **more}


def decide(served, person, need, accept, *, stream="chat", time=0.0, text="Look?", **more):
    """A decision on numbers that the host states."""
    asked = stated(stream, need, [accept], time, person=person, candidates=[text], **more)
    status, answer, _ = served.ask("/v1/decide", asked)
    assert status == 200, answer
    return answer


def offer_of(served, stream, person=None, **headers):
    """The id of an offer that was made on numbers that the host states."""
    answer = served.ask("/v1/decide", stated(stream) | ({"person": person} if person else {}), **headers)[1]
    assert answer["speak"], answer
    return answer["id"]


def seen(number, **more):
    """The body of an event."""
    return {"time": 60.0 * number, "text": f"event {number}", **more}


def answered(served, offer, outcome="accepted", time=100.0, **headers):
    """Status and body of the answer to an outcome of an offer."""
    body = {"stream": offer.rpartition("/")[0], "offer": offer, "outcome": outcome, "time": time}
    return served.ask("/v1/outcomes", body, **headers)[:2]


def live(served, clock, person, days=7, seed=3):
    """A made-up week, which ends now: offers of which some were accepted, and silences."""
    draw, now, made = random.Random(seed), clock.now, 0
    for day in range(days):
        begin = now - 86400.0 * (days - 1 - day) - 9 * 3600.0
        for step in range(14):
            clock.now = begin + step * 2200.0 + draw.random() * 900.0
            need, accept = draw.uniform(0.45, 0.95), draw.uniform(0.25, 0.92)
            text = OFFERS[(5 * made) % len(OFFERS)]
            made += 1
            answer = decide(served, person, need, accept, time=clock.now, text=text, stream=person)
            if answer["speak"] and (day < days - 1 or draw.random() < 0.4):
                outcome = "accepted" if draw.random() < accept else "dismissed"
                assert answered(served, answer["id"], outcome, clock.now + 30.0)[0] == 200
    clock.now = now


def watch(served, clock, person, seed=5):
    """A made-up day, which ends now, of a host that speaks wherever help seems needed, while the gate watches."""
    draw, now = random.Random(seed), clock.now
    for step in range(26):
        clock.now = now - 10 * 3600.0 + step * 1350.0 + draw.random() * 600.0
        need, accept = draw.uniform(0.3, 0.95), draw.uniform(0.15, 0.9)
        text, host = OFFERS[(5 * step) % len(OFFERS)], {"spoke": need >= 0.5}
        answer = decide(served, person, need, accept, time=clock.now, text=text, stream=person, **host)
        if answer["speak"] and draw.random() < 0.85:
            outcome = "accepted" if draw.random() < accept else "dismissed"
            assert answered(served, answer["id"], outcome, clock.now + 30.0)[0] == 200
    clock.now = now


class Clock:
    """Seconds since 1970, as a test says."""

    def __init__(self, now=1_795_712_400.0):  # 26 November 2026, 18:00 in Paris
        self.now = now

    def __call__(self):
        return self.now


def records(served, **query):
    query = urllib.parse.urlencode({"limit": 1000, **query})
    return served.ask(f"/v1/records?{query}")[1]["records"]


def counts(served):
    """What is counted, for Prometheus."""
    with urllib.request.urlopen(served.url + "/metrics") as answer:
        return answer.read().decode()


def cookie_of(visitor):
    return next(f"prism-me={one.value}" for one in visitor.cookies if one.name == "prism-me")


def offer_numbers(page):
    return re.findall(r'name="number" value="([0-9]+)"', page)
