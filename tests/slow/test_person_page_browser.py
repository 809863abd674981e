"""The person's page in a real browser: without axe's violations, by keys alone, on a phone, and with hostile texts.

Needs Debian's packages chromium and chromium-driver; where this process may, it installs them. The pictures of
docs/service.md come from here: PRISM_PICTURES=docs/figures names the folder for them.
"""

import datetime
import importlib.resources
import json
import os
import pathlib
import textwrap
import zoneinfo

import pytest

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
from browsing import asked_for, emulate, shoot, sideways
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait
from served import Stateful
from visitor import Clock, decide, key_of, live, records, watch

from prism_jax.agent.service.shadow import shadow_report, watched_of
from prism_jax.agent.settings import AgentSettings, Critical, Terms
from prism_jax.decision.operating_point import OperatingPoint

pytestmark = pytest.mark.slow

ATTACK = (
    "</p></main><script>window.hit=1</script><img src=//x.invalid/a onerror=window.hit=1><style>*{display:none}</style>"
)
HOSTILE = (
    ATTACK,
    "\"'><svg onload=window.hit=1> \u202egnp.exe\u202c \x1b[2J {{7*7}} <!--",
    "x" * 500_000,
    "Z\u0351\u0353\u0352\u036c" * 60 + " e\u0301" + "\u0323\u0307" * 200,
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with two weeks alike, of ada's and bob's, and with one whose name and texts are hostile."""
    clock = Clock()
    settings = AgentSettings(Terms(OperatingPoint(c_fa=1.0, c_fn=1.0)), critical=Critical(texts=frozenset({"fire"})))
    with Stateful(tmp_path_factory.mktemp("state") / "state", clock=clock, settings=settings) as served:
        for person in ("ada", "bob"):
            live(served, clock, person)
        begin = clock.now - 9 * 3600.0
        for i in range(8):
            for number, text in enumerate(HOSTILE):
                clock.now = begin + 60.0 * i
                decide(
                    served, ATTACK, 0.9, 0.9 if i % 2 else 0.1, stream=f"{ATTACK}{number}", time=clock.now, text=text
                )
        clock.now = begin + 9 * 3600.0
        served.clock = clock
        yield served


@pytest.fixture
def page(browser, server):
    """Signs somebody in, with the browser as a device of so many points across; nothing may be amiss in the end."""

    def sign_in(person="ada", width=1280, scheme="light", scripts=True):
        browser.execute_cdp_cmd("Network.clearBrowserCookies", {})
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        emulate(browser, width, scheme)
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Paris"})
        browser.get(f"{server.url}/me/link?key={key_of(server, person)}")
        ActionChains(browser).send_keys(Keys.TAB, Keys.ENTER).perform()
        WebDriverWait(browser, 10).until(lambda one: one.current_url == f"{server.url}/me")
        return browser

    browser.get_log("browser")
    browser.get_log("performance")
    yield sign_in
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert browser.get_log("browser") == []
    asked = asked_for(browser)
    assert asked and all(url.startswith((server.url, "data:")) for url in asked)


def go(browser, change):
    """Does what leads to another page, and waits for that."""
    before = browser.find_element(By.TAG_NAME, "html")
    change()
    WebDriverWait(browser, 10).until(lambda one: one.find_element(By.TAG_NAME, "html") != before)


@pytest.fixture(scope="module")
def axe():
    """The script of axe: of the package, or of the file in PRISM_AXE."""
    if named := os.environ.get("PRISM_AXE"):
        return pathlib.Path(named).read_text(encoding="utf-8")
    pytest.importorskip("axe_core_python", reason="axe: found no package axe-core-python, expected that of the tests")
    return (importlib.resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


def violations(browser, axe):
    """What axe finds against the page."""
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 15
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320])
def test_axe_finds_nothing_and_no_width_scrolls_sideways(axe, page, server, tmp_path, width, scheme):
    for person in ("ada", ATTACK):
        browser = page(person, width, scheme)
        browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        assert violations(browser, axe) == []
        assert sideways(browser) == 0
        shoot(browser, tmp_path / f"{person[:3].strip('</')}-{width}-{scheme}.png")
    browser.get(server.url + "/me")
    browser.execute_script("document.querySelector('[for=range]').remove()")
    assert "label" in dict(violations(browser, axe)), "it would find something"
    for path in ("/me/forget", f"/me/link?key={key_of(server, 'ada')}", "/me/link?key=none"):
        browser.get(server.url + path)
        assert violations(browser, axe) == [], path
        assert sideways(browser) == 0
    ended = browser.get_log("browser")  # a link that has ended has a status of 410
    assert len(ended) == 1 and "410" in ended[0]["message"]


def test_hostile_texts_stay_texts(page):
    browser = page(ATTACK)
    assert browser.execute_script("return window.hit") is None
    assert (
        browser.execute_script(
            "return document.querySelectorAll('img, main script, main style, main svg:not(.strip)').length"
        )
        == 0
    )
    shown = browser.execute_script("return [...document.querySelectorAll('.what')].map((one) => one.textContent)")
    assert ATTACK in shown and max(map(len, shown)) <= 330
    assert not any(mark in browser.page_source for mark in ("\u202e", "\x1b"))
    assert browser.find_element(By.CSS_SELECTOR, ".who bdi").text.startswith("</p></main><script>")
    heights = browser.execute_script(
        "return [...document.querySelectorAll('.day > li')].map((one) => one.offsetHeight)"
    )
    assert max(heights) < 400


def test_keys_suffice_and_the_slider_says_what_it_would_have_done(page, server):
    browser = page("bob")
    words = browser.execute_script("return [...document.querySelectorAll('.step small')].map((one) => one.textContent)")
    assert not browser.find_element(By.ID, "steps").is_displayed()
    order = []
    for _ in range(15):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        focused = browser.switch_to.active_element
        order.append(focused.get_attribute("id") or focused.text or focused.tag_name)
    assert order[:4] == ["To the content", "Sign out", "Everywhere", "range"]
    assert order[4:11] == [
        "Save",
        "1 hour",
        "4 hours",
        "until tomorrow 8:00",
        "a week",
        "30 days",
        "Quiet hours every day",
    ]
    slider = browser.find_element(By.ID, "range")
    for key, step in ((Keys.ARROW_RIGHT, 3), (Keys.ARROW_RIGHT, 4), (Keys.HOME, 0), (Keys.ARROW_RIGHT, 1)):
        slider.send_keys(key)
        assert browser.find_element(By.ID, "preview").text == words[step]
    assert slider.get_attribute("aria-valuetext") == "Less"
    assert browser.find_element(By.ID, "preview").get_attribute("aria-live") == "polite"
    go(browser, lambda: slider.send_keys(Keys.TAB, Keys.ENTER))
    assert browser.find_element(By.CSS_SELECTOR, "[role=status]").text.startswith("Saved.")
    assert browser.find_element(By.ID, "range").get_attribute("value") == "-1"
    go(browser, lambda: browser.find_element(By.CSS_SELECTOR, "[value=morning]").send_keys(Keys.ENTER))
    assert browser.find_element(By.TAG_NAME, "h1").text == "Snoozed until tomorrow 08:00"
    go(browser, lambda: browser.find_element(By.CSS_SELECTOR, ".standing button").send_keys(Keys.ENTER))
    before = len(browser.find_elements(By.CSS_SELECTOR, ".judge"))
    go(browser, lambda: browser.find_element(By.CSS_SELECTOR, ".judge [value=accepted]").send_keys(Keys.SPACE))
    assert len(browser.find_elements(By.CSS_SELECTOR, ".judge")) == before - 1
    fields = "[...document.querySelectorAll('main input:not([type=hidden]), select')]"
    assert browser.execute_script(f"return {fields}.every((one) => one.labels.length)")


def test_without_scripts_everything_is_there(page):
    browser = page("bob", width=320, scripts=False)
    assert len(browser.find_elements(By.CSS_SELECTOR, ".step")) == 5 and sideways(browser) == 0
    browser.find_element(By.CSS_SELECTOR, ".step input[value='2']").click()
    go(browser, lambda: browser.find_element(By.CSS_SELECTOR, "#level-form > button").click())
    assert browser.find_element(By.CSS_SELECTOR, ".step input[checked]").get_attribute("value") == "2"
    assert browser.find_element(By.CSS_SELECTOR, "[value=morning]").text == "until tomorrow 8:00 UTC"


def picture_of(found, path):
    """Draws a day in shadow mode: what the host did, what the gate would have done, and what that saved."""
    plt = pytest.importorskip("matplotlib.pyplot", reason="the picture of a report needs matplotlib")
    said = {one["offer"]: one["outcome"] for one in found if one["kind"] == "outcome"}
    looks = {
        "accepted": ("o", "#23774c", "accepted"),
        "dismissed": ("X", "#b4540a", "dismissed"),
        "none": ("o", "#c9d0d6", "not answered"),
        "silent": ("|", "#7b8590", "silent"),
        "added": ("D", "#0b6bab", "where the host was silent"),
    }
    places, saved, total = {look: ([], []) for look in looks}, [], 0.0
    for one in (one for one in found if one["kind"] == "decision"):
        when = datetime.datetime.fromtimestamp(one["time"], zoneinfo.ZoneInfo("Europe/Paris")).replace(tzinfo=None)
        would, outcome = one["shadow"]["would_speak"], said.get(one["offer"], "none")
        rows = outcome if one["spoke"] else "silent", (outcome if one["spoke"] else "added") if would else "silent"
        for height, look in zip((1, 0), rows, strict=True):
            places[look][0].append(when)
            places[look][1].append(height)
        if one["spoke"] and not would:
            (c_fa, c_fn), p_accept = (one["costs"][cost] for cost in ("c_fa", "c_fn")), one["p_accept"]
            needed = one["p_need"] * c_fn
            expected = (1 - p_accept) * c_fa - p_accept * needed
            total += {"accepted": -needed, "none": expected}.get(outcome, c_fa)
        saved.append((when, total))
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(8.6, 5.2), height_ratios=(1, 1.1))
    for look, (marker, colour, label) in looks.items():
        above.scatter(*places[look], s=70, marker=marker, c=colour, label=label, linewidths=1.2)
    above.set_yticks([0, 1], ["the gate would\nhave offered", "the host\noffered"])
    above.set_ylim(-0.5, 1.5)
    above.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.42, 1.0), frameon=False, handletextpad=0.1)
    below.step(*zip(*saved, strict=True), where="post", color="#0b6bab", linewidth=2)
    below.axhline(0.0, color="#c9d0d6", linewidth=1)
    below.set_ylabel("saved so far, in\nunwanted offers")
    below.xaxis.set_major_formatter(plt.matplotlib.dates.DateFormatter("%H:%M"))
    for axis in (above, below):
        axis.spines[["top", "right"]].set_visible(False)
    lines = shadow_report(map(watched_of, found)).text().splitlines()
    words = "\n".join(textwrap.fill(line, 112) for line in lines)
    figure.text(0.02, 0.02, words, va="bottom", fontsize=9.5, linespacing=1.5)
    figure.tight_layout(rect=(0, 0.042 * (words.count("\n") + 1), 1, 1))
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)
    return total


def test_a_day_in_shadow_mode_is_pictured_as_it_is_reported(page, server, tmp_path):
    folder = pathlib.Path(os.environ.get("PRISM_PICTURES", tmp_path))
    watch(server, server.clock, "carol")
    found = records(server, person="carol")
    saved = picture_of(found, folder / "shadow_day.png")
    report = server.ask("/v1/shadow")[1]
    assert report == json.loads(json.dumps(shadow_report(map(watched_of, found)).tree()))
    assert saved == pytest.approx(-report["withheld_cost"]["value"] * report["decisions"]) and saved > 0
    assert report["withheld"]["accepted"] and report["added"] and report["gate_offers"] < report["host_offers"]
    browser = page("carol", width=860)
    assert f"The app itself made {report['decisions']} of these decisions" in browser.page_source
    assert sideways(browser) == 0
    assert 8_000 < shoot(browser, folder / "shadow_page.webp", 1900, format="webp", quality=70) < 100_000
    assert 8_000 < (folder / "shadow_day.png").stat().st_size < 100_000


def test_the_pictures_of_the_docs_are_small(page, tmp_path):
    folder = pathlib.Path(os.environ.get("PRISM_PICTURES", tmp_path))
    browser = page(width=860)
    small = {"format": "webp", "quality": 70}
    assert 8_000 < shoot(browser, folder / "person_page.webp", 1500, **small) < 100_000
    browser = page(width=390, scheme="dark")
    assert 8_000 < shoot(browser, folder / "person_page_phone.webp", 1500, **small) < 100_000
