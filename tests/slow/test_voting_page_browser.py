"""The page for people in a real browser: by keys alone, from the disk, kept over a reload, and downloaded as votes.

Needs Debian's packages chromium and chromium-driver; where this process may, it installs them.
"""

import collections
import itertools
import time

import numpy as np
import pytest
from browsing import asked_for, emulate, shoot, sideways, try_to_add_others
from judged_streams import bare, labelled
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_person_page_browser import HOSTILE, axe, violations  # noqa: F401

from prism_jax.commands.judging import show_people, voting_page
from prism_jax.labelling.judges.labelling import human_of
from prism_jax.labelling.judges.sampling import common_events, draw_events
from prism_jax.labelling.judges.votes import read_votes
from prism_jax.runtime.shown_text import visible
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.edit import map_candidates
from prism_jax.streams.jsonl import write_streams

pytestmark = pytest.mark.slow

MOST = 4


def saying(name, every):
    """Streams of a system that says something at every so many steps, and something of its own at every other."""
    count = itertools.count()

    def say(_):
        index = next(count)
        text = None if index % every == 0 else f"Shall I sort these {index % every} notes?"
        return Candidate(proposal=f"{text} ({name})" if text and index % 2 else text)

    return [Stream(**{**vars(one), "steps": tuple(map_candidates(step, say) for step in one.steps)}) for one in STREAMS]


STREAMS = bare(labelled(6))
SYSTEMS = {"alpha": saying("one", 3), "beta": saying("two", 4)}


@pytest.fixture(scope="module")
def drawn():
    return draw_events(common_events(SYSTEMS, MOST), 12, 3)


@pytest.fixture
def show(browser, drawn, tmp_path):
    """Opens a page from the disk with nothing kept; it asks for nothing and logs nothing in the end."""
    path = tmp_path / "page.html"

    def open_page(events=drawn, width=1280, scheme="light"):
        path.write_text(voting_page(events, MOST), encoding="utf-8")
        emulate(browser, width, scheme)
        browser.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
        browser.get(path.as_uri())
        wait_for(lambda: is_new(browser))
        return browser

    browser.get_log("browser")
    browser.get_log("performance")
    yield open_page
    assert browser.get_log("browser") == []
    asked = asked_for(browser)
    assert asked and all(url.startswith((path.as_uri(), "blob:")) for url in asked)


def press(browser, *keys):
    ActionChains(browser).send_keys(*keys).perform()


def wait_for(holds):
    """A browser on a busy machine may handle a key only after the call that pressed it has returned."""
    for _ in range(100):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("the page did not follow within 10 seconds")


def is_new(browser):
    """Clears what is kept and reloads; the page may be in another process by then, which does not know it yet."""
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    return browser.execute_script("return localStorage.length") == 0


def is_shown(browser, name):
    return browser.find_element(By.ID, name).is_displayed()


def begin(browser, name):
    press(browser, Keys.TAB, Keys.TAB, name, Keys.ENTER)
    assert is_shown(browser, "moment")


def answer(browser, event, person, open_at=()):
    """Answers an event by keys and goes on; gives what each question was answered, by text, None for need."""
    said = {}
    assert len(browser.find_elements(By.CSS_SELECTOR, ".question")) == 1, "proposals wait for the first answer"
    for text in (None, *(proposal.text for proposal in event.proposals)):
        said[text] = person(event, text)
        press(browser, "y" if said[text] else "n")
        wait_for(lambda: len(browser.find_elements(By.CSS_SELECTOR, ".question :checked")) == len(said))
    assert browser.find_element(By.ID, "next").text == "Next"
    shown = browser.find_element(By.ID, "count").text
    press(browser, Keys.ENTER)
    wait_for(lambda: not is_shown(browser, "moment") or browser.find_element(By.ID, "count").text != shown)
    return said


def downloaded(browser, folder, button):
    """The file that a button downloads, which replaces an older one."""
    for old in folder.glob("*.jsonl"):
        old.rename(old.with_suffix(f".{time.monotonic_ns()}"))
    browser.find_element(By.ID, button).send_keys(Keys.ENTER)
    for _ in range(100):
        if new := [*folder.glob("*.jsonl")]:
            return new[0]
        time.sleep(0.1)
    raise AssertionError("nothing was downloaded")


def expected(drawn, said):
    """The verdict at every place of what was answered."""
    found = {}
    for event, answers in zip(drawn, said, strict=True):
        for text, yes in answers.items():
            places = event.silence if text is None else next(one.places for one in event.proposals if one.text == text)
            found |= dict.fromkeys(places, yes if text is not None else not yes)
    return found


def verdicts(path, name):
    votes = list(read_votes(path))
    assert {(vote.judge, vote.prompt, vote.time is not None) for vote in votes} == {(name, "page", True)}
    return {(vote.question, vote.stream, vote.step, vote.candidate): vote.verdict for vote in votes}


def test_keys_suffice_and_answers_outlive_a_reload(show, drawn, tmp_path):
    browser = show()
    begin(browser, "Ada B.")
    rng = np.random.default_rng(0)
    person = lambda *_: bool(rng.integers(2))  # noqa: E731
    said = [answer(browser, event, person) for event in drawn[:5]]
    browser.find_element(By.ID, "next").send_keys(Keys.ENTER)  # skips one
    browser.refresh()
    assert browser.find_element(By.ID, "count").text == "Moment 7 of 12 · 5 answered"
    assert browser.find_element(By.ID, "who").text == "Ada B."
    assert verdicts(downloaded(browser, tmp_path, "download"), "Ada B.") == expected(drawn[:5], said)
    browser.find_element(By.ID, "back").send_keys(Keys.ENTER)
    said.append(answer(browser, drawn[5], person))
    said += [answer(browser, event, person) for event in drawn[6:]]
    assert is_shown(browser, "end") and "12 of 12 moments" in browser.find_element(By.ID, "sum").text
    browser.find_element(By.ID, "return").send_keys(Keys.ENTER)
    chosen = browser.find_element(By.CSS_SELECTOR, "[name=need]:checked")
    chosen.send_keys("n" if said[-1][None] else "y")
    said[-1][None] = not said[-1][None]
    browser.find_element(By.ID, "next").send_keys(Keys.ENTER)
    path = downloaded(browser, tmp_path, "finish")
    assert path.name.startswith("votes-Ada_B_-")
    assert verdicts(path, "Ada B.") == expected(drawn, said)
    found = human_of([str(path)], [one for streams in SYSTEMS.values() for one in streams], MOST)
    assert found.judges == ("Ada B.",) and len(found.items) == sum(1 + len(event.proposals) for event in drawn)


def test_another_person_begins_anew_and_may_clear_what_they_said(show, drawn, tmp_path):
    browser = show()
    begin(browser, "Ada")
    said = answer(browser, drawn[0], lambda *_: True)
    browser.find_element(By.ID, "change").send_keys(Keys.ENTER)
    browser.switch_to.active_element.send_keys("Bo", Keys.ENTER)
    assert browser.find_element(By.ID, "count").text == "Moment 1 of 12 · 0 answered"
    press(browser, "n")
    browser.find_element(By.ID, "clear").send_keys(Keys.ENTER)
    assert not browser.find_elements(By.CSS_SELECTOR, ":checked") and not is_shown(browser, "clear")
    browser.find_element(By.ID, "change").send_keys(Keys.ENTER)
    browser.switch_to.active_element.send_keys("Ada", Keys.ENTER)
    assert browser.find_element(By.ID, "count").text == "Moment 2 of 12 · 1 answered"
    assert verdicts(downloaded(browser, tmp_path, "download"), "Ada") == expected(drawn[:1], [said])


def test_three_people_reach_the_tables(show, drawn, tmp_path, capsys, monkeypatch):
    """The third disagrees with the others about every proposal, and agrees with them about silence."""
    paths = []
    for number, name in enumerate(("Ada", "Bo", "Cy")):
        browser = show()
        begin(browser, name)
        for event in drawn:
            answer(
                browser,
                event,
                lambda event, text, number=number: (event.event % 2 == 0) != (number == 2 and bool(text)),
            )
        paths.append(str(downloaded(browser, tmp_path, "finish").rename(tmp_path / name)))
    for name, streams in SYSTEMS.items():
        write_streams(tmp_path / f"{name}.streams", streams)
    systems = [f"{name}={tmp_path / name}.streams" for name in SYSTEMS]
    monkeypatch.setenv("COLUMNS", "250")
    show_people({"streams": None, "system": systems, "human": paths, "resamples": 100}, MOST)
    rows = collections.defaultdict(list)
    for line in capsys.readouterr().out.splitlines():
        rows[line.strip().split("  ")[0]].append(line)
    offers, silences = rows["Ada / Bo"]
    assert " 100.0" in offers and " 100.0" in silences
    assert " 0.0" in rows["Cy / all but Cy"][0] and " 100.0" in rows["Cy / all but Cy"][1]
    assert len(rows["human votes"]) == 2 and "33.3" in rows["human votes"][0] and "100.0" in rows["human votes"][1]


def hostile(most=10**6):
    """One stream whose events, name and proposals are hostile, each text with at most so many characters."""
    texts = [text[:most] for text in HOSTILE]
    events = tuple(Event(time=70.0 * i, text=text) for i, text in enumerate(texts))
    steps = tuple(
        Step(event=i, candidates=tuple(Candidate(proposal=text) for text in texts)) for i in range(len(texts))
    )
    streams = [Stream(id=HOSTILE[0], events=events, steps=steps)]
    return draw_events(common_events({"x": streams}, MOST), len(HOSTILE), 0)


def test_hostile_texts_stay_texts(show, tmp_path):
    events = hostile()
    browser = show(events, 360)
    begin(browser, HOSTILE[0][:100])
    for event in events:
        press(browser, "y")
        assert sideways(browser) == 0
        quotes = browser.execute_script(
            "return [...document.querySelectorAll('blockquote')].map((one) => one.textContent)"
        )
        assert quotes == [visible(proposal.text) for proposal in event.proposals]
        assert browser.execute_script("return document.getElementById('now').textContent") == visible(
            HOSTILE[event.event]
        )
        heights = "return [...document.querySelectorAll('blockquote, .events')].map((one) => one.offsetHeight)"
        assert max(browser.execute_script(heights)) < 500
        browser.find_element(By.ID, "next").send_keys(Keys.ENTER)
    assert browser.execute_script("return window.hit") is None
    assert browser.execute_script("return document.querySelectorAll('img, svg, main script, main style').length") == 0
    path = downloaded(browser, tmp_path, "finish")
    assert {(vote.stream, vote.judge) for vote in read_votes(path)} == {(HOSTILE[0], HOSTILE[0][:100])}


def test_the_policy_stops_what_the_page_did_not_bring(show):
    browser = show()
    stopped = try_to_add_others(browser)
    assert sum("Content Security Policy" in message for message in stopped) == len(stopped) == 2
    browser.get_log("performance")  # which has the request that was stopped
    browser.refresh()


def test_a_browser_that_keeps_nothing_says_so_and_works(show, drawn):
    browser = show()
    browser.execute_script("Storage.prototype.setItem = () => { throw new DOMException('full'); }")
    begin(browser, "Ada")
    assert is_shown(browser, "trouble") and "Download" in browser.find_element(By.ID, "trouble").text
    answer(browser, drawn[0], lambda *_: True)
    assert browser.find_element(By.ID, "count").text == "Moment 2 of 12 · 1 answered"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing_and_no_width_scrolls_sideways(axe, show, tmp_path, width, scheme):  # noqa: F811
    for kind, events in (("plain", None), ("hostile", hostile(3000))):
        browser = show(*(() if events is None else (events,)), width=width, scheme=scheme)
        for part in ("begin", "moment", "end"):
            if part == "moment":
                begin(browser, "Ada")
                for _ in range(3):
                    browser.find_element(By.ID, "next").send_keys(Keys.ENTER)
                press(browser, "y")
            while part == "end" and not is_shown(browser, "end"):
                browser.find_element(By.ID, "next").send_keys(Keys.ENTER)
            assert violations(browser, axe) == [], part
            assert sideways(browser) == 0
            assert shoot(browser, tmp_path / f"{kind}-{part}-{width}-{scheme}.png") > 8_000
    browser.execute_script(
        "document.querySelector('[for=name]').remove(); document.getElementById('begin').hidden = false"
    )
    assert "label" in dict(violations(browser, axe)), "it would find something"
