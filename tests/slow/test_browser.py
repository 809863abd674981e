"""The report in a real browser: its numbers are the library's, it asks for nothing, and keys and phones suffice.

Needs Debian's packages chromium and chromium-driver; where this process may, it installs them.
"""

import numpy as np
import pytest
from browsing import asked_for, emulate, shoot, sideways, try_to_add_others
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from synthetic_scores import make_columns

from prism_jax.decision import gate, thinking
from prism_jax.decision.calibration import apply_temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.passes import Pass
from prism_jax.evaluation import protocol
from prism_jax.report import page
from prism_jax.report.controls import TEMPERATURES
from prism_jax.runtime.shown_text import visible
from prism_jax.scores import Scores
from prism_jax.streams import Event, Step, Stream

pytestmark = pytest.mark.slow

ATTACK = (
    "</script><script>window.hit=1</script><style>*{display:none}</style><img src=//x.invalid/a onerror=window.hit=1> "
    "\"onmouseover='window.hit=1' <!--<script> \u202egnp.exe {{7*7}}"
)
POINTS = {"margin": OperatingPoint(c_fa=1.5, c_fn=3.6, trigger="margin"), "value": OperatingPoint(trigger="value")}


def stream(name, steps=12):
    events = tuple(Event(time=61.0 * i, text=f"{i}. {ATTACK}") for i in range(steps + 1))
    return Stream(id=name, events=events, steps=tuple(Step(event=i + 1) for i in range(steps)), domain="coding")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """For each trigger, the report's path, and the counts behind it."""
    columns = make_columns(streams=60)
    columns["persona"] = [("eager", "reserved <b>")[int(name.split("-")[1]) // 6 % 2] for name in columns["stream"]]
    columns["tokens_slow"] = np.random.default_rng(1).integers(10, 40, len(columns["step"]))
    columns["y_accept"][::17] = np.nan
    scores = Scores.from_columns(columns)
    calibration = protocol.calibrate(scores)
    found = {}
    for name, point in POINTS.items():
        path = tmp_path_factory.mktemp(name) / "report.html"
        evaluation = protocol.evaluate(scores, calibration, point)
        known = [stream(f"stream-{i}") for i in range(60)]
        exploration = protocol.explore(scores, calibration, point)
        path.write_text(page.render(evaluation, exploration, calibration, streams=known))
        found[name] = path, exploration, calibration, evaluation
    return found


def show(browser, path, width=1280, scheme="light"):
    emulate(browser, width, scheme)
    browser.get(path.as_uri())


def put(browser, **values):
    """Sets inputs by their ids and tells the page, as a user's movement does."""
    for name, value in values.items():
        browser.execute_script(
            "const one = document.getElementById(arguments[0]); one.value = arguments[1];"
            "one.dispatchEvent(new Event('input', { bubbles: true }));",
            name.replace("_", "-"),
            str(value),
        )


def numbers(browser):
    """Every number that the page shows, unrounded."""
    names = ("cost", "offer-rate", "slow-rate", "recall", "dismissed", "false-alarm", "tp", "fp", "fn", "tn")
    script = "return arguments[0].map((id) => document.getElementById(id).dataset.value)"
    return dict(zip(names, map(float, browser.execute_script(script, names)), strict=True))


def by_the_library(found, calibration, trigger, chosen, ratio, setting, need=1.0, accept=1.0):
    """The same numbers from the library's own decisions."""
    table = next(table for table in found.tables if table.trigger == trigger)
    r, s = float(found.ratios[ratio]), float(table.settings[setting])
    passes = [Pass(apply_temperature(p, need), apply_temperature(q, accept)) for p, q in found.passes]
    if trigger == "margin":
        offer, slow = gate.decide_with_slow(*passes, 1.0, r, s)
    else:
        fit = calibration.thinking
        offer, slow = thinking.decide_by_value(*passes, 1.0, r, fit.moves, s, fit.tokens)
    label = np.where(slow, found.y_accept[1], found.y_accept[0])
    judged, gold = found.judged & chosen, found.y_need * label == 1
    missed = found.y_need * found.y_best == 1
    tp, fp, fn = (int((judged & part).sum()) for part in (offer & gold, offer & ~gold, ~offer & missed))
    rejected, total = int((judged & offer & (label == 0)).sum()), int(judged.sum())
    return {
        "cost": found.c_fa * (rejected + r * fn) / total,
        "offer-rate": (offer & chosen).sum() / chosen.sum(),
        "slow-rate": (slow & chosen).sum() / chosen.sum(),
        "recall": tp / (tp + fn),
        "dismissed": rejected / (tp + fp),
        "false-alarm": fp / (tp + fp),
        "tp": tp,
        "fp": fp,
        "fn": fn,
        "tn": total - tp - fp - fn,
    }


@pytest.mark.parametrize("trigger", POINTS)
def test_sliders_move_the_numbers_to_what_the_library_computes(browser, pages, trigger):
    path, found, calibration, evaluation = pages[trigger]
    show(browser, path)
    table, everywhere = found.tables[0], np.ones(len(found.stream), bool)
    assert table.trigger == trigger
    opened = numbers(browser)
    assert opened["cost"] == pytest.approx(evaluation.deployed.realised_cost, rel=1e-12)
    assert [opened[name] for name in ("tp", "fp", "fn", "tn")] == [
        getattr(evaluation.deployed, name) for name in ("tp", "fp", "fn", "tn")
    ]
    rng = np.random.default_rng(0)
    for _ in range(25):
        ratio, setting = int(rng.integers(8, len(found.ratios))), int(rng.integers(len(table.settings)))
        put(browser, ratio=ratio, setting=setting)
        expected = by_the_library(found, calibration, trigger, everywhere, ratio, setting)
        assert numbers(browser) == expected
        shown = browser.find_element(By.ID, "cost").text
        assert shown == f"{expected['cost']:.4f}"


def test_temperatures_and_selections_count_step_by_step_as_the_library_does(browser, pages):
    path, found, calibration, _ = pages["margin"]
    show(browser, path)
    rng = np.random.default_rng(2)
    ratio, setting = found.deployed, found.tables[0].deployed
    for domain, persona in (("", ""), ("coding", ""), ("", "reserved <b>"), ("life", "eager")):
        wanted = [(not domain or d == domain) and (not persona or p == persona) for d, p in found.groups]
        chosen = np.array(wanted)[found.group]
        put(browser, domain=f"={domain}" if domain else "", persona=f"={persona}" if persona else "")
        for _ in range(6):
            need, accept = map(int, rng.integers(len(TEMPERATURES), size=2))
            put(browser, need_temperature=need, accept_temperature=accept)
            temperatures = TEMPERATURES[need], TEMPERATURES[accept]
            expected = by_the_library(found, calibration, "margin", chosen, ratio, setting, *temperatures)
            assert numbers(browser) == expected


def test_with_several_candidates_silence_costs_what_the_best_one_misses(browser, tmp_path):
    columns = make_columns(streams=24)
    values = {name: np.repeat(np.asarray(column), 3) for name, column in columns.items()}
    rng, number = np.random.default_rng(3), len(values["stream"])
    values |= {"candidate": np.tile(np.arange(3), number // 3), "tokens_slow": np.full(number, 20.0)}
    slow, other = rng.random((2, number))
    values |= {"p_accept_fast": (slow + other) / 2, "p_accept_slow": slow}
    values["y_accept"] = (rng.random(number) < slow).astype(float)
    scores, point = Scores.from_columns(values), POINTS["margin"]
    calibration = protocol.calibrate(scores)
    evaluation = protocol.evaluate(scores, calibration, point)
    found, everywhere = protocol.explore(scores, calibration, point), np.ones(number // 6, bool)
    (tmp_path / "report.html").write_text(page.render(evaluation, found, calibration))
    show(browser, tmp_path / "report.html")
    opened = numbers(browser)
    assert opened["cost"] == pytest.approx(evaluation.deployed.realised_cost, rel=1e-12)
    never = evaluation.policy("never").realised_cost
    assert browser.find_element(By.ID, "cost-note").text.endswith(f"never {never:.4f}")
    for ratio, temperature in ((20, 9), (30, 9), (25, 4)):  # from the table of counts, then step by step
        put(browser, ratio=ratio, accept_temperature=temperature)
        setting = found.tables[0].deployed
        known = TEMPERATURES[temperature]
        assert numbers(browser) == by_the_library(found, calibration, "margin", everywhere, ratio, setting, 1.0, known)


def test_the_stream_shows_the_decisions_of_the_chosen_point(browser, pages):
    path, found, *_ = pages["margin"]
    show(browser, path)
    select = browser.find_element(By.ID, "stream")
    names = [option.text for option in select.find_elements(By.TAG_NAME, "option")]
    assert sorted(names) == sorted(set(found.stream))
    for _ in range(3):
        browser.find_element(By.ID, "next").click()
        name = names[browser.execute_script("return document.getElementById('stream').selectedIndex")]
        for ratio in (10, 30):
            put(browser, ratio=ratio)
            mine = found.stream == name
            offer, _ = gate.decide_with_slow(*found.passes, 1.0, float(found.ratios[ratio]), 0.1)
            pills = browser.execute_script(
                "return [...document.querySelectorAll('#moments .pill')].map((one) => one.textContent)"
            )
            assert pills == ["offer" if one else "silent" for one in offer[mine]]
    browser.find_element(By.ID, "only-stream").click()
    assert "12 steps" in browser.find_element(By.ID, "offer-rate-note").text


def test_nothing_is_asked_for_nothing_fails_and_hostile_text_stays_text(browser, pages):
    for path, *_ in pages.values():
        browser.get_log("performance")
        browser.get_log("browser")
        show(browser, path)
        put(browser, ratio=5)
        put(browser, stream=3)
        assert asked_for(browser) == [path.as_uri()]
        assert browser.get_log("browser") == []
        assert browser.execute_script("return window.hit") is None
        cells = browser.execute_script(
            "return [...document.querySelectorAll('#moments .what')].map((one) => one.textContent)"
        )
        assert cells == [visible(f"{i}. {ATTACK}") for i in range(13)]
        assert (
            browser.execute_script("return document.querySelectorAll('img, #moments script, #moments style').length")
            == 0
        )
        personas = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#persona option")]
        assert personas == ["all", "eager", "reserved <b>"]


def test_the_policy_stops_what_the_page_did_not_bring(browser, pages):
    show(browser, pages["margin"][0])
    assert sum("Content Security Policy" in message for message in try_to_add_others(browser)) == 2


def test_keys_suffice(browser, pages):
    path, found, *_ = pages["margin"]
    show(browser, path)
    order = []
    for _ in range(20):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        focused = browser.switch_to.active_element
        order.append(focused.get_attribute("id") or focused.tag_name)
    panel = ["ratio", "trigger", "setting", "need-temperature", "accept-temperature", "domain", "persona", "stream"]
    panel += ["previous", "next", "only-stream", "reset"]
    assert order[: len(panel) + 3] == [*panel, "svg", "svg", "div"]  # then both figures and the table of events
    slider = browser.find_element(By.ID, "ratio")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert browser.find_element(By.ID, "ratio-value").text == f"{found.ratios[found.deployed + 1]:g}"
    assert slider.get_attribute("aria-valuetext") == f"{found.ratios[found.deployed + 1]:g}"
    assert all(
        browser.execute_script("return arguments[0].labels.length", browser.find_element(By.ID, name))
        for name in panel[:8]
    )


def test_figures_answer_to_the_pointer_and_to_focus(browser, pages):
    show(browser, pages["margin"][0])
    tip = browser.find_element(By.ID, "tip")
    assert not tip.is_displayed()
    dot = browser.find_element(By.CSS_SELECTOR, "#curve circle.dot")
    ActionChains(browser).move_to_element(dot).perform()
    assert tip.text.startswith("ratio 2.4: gate 0.")
    ActionChains(browser).move_to_element(browser.find_element(By.TAG_NAME, "h1")).perform()
    assert not tip.is_displayed()
    browser.find_element(By.ID, "reset").send_keys(Keys.TAB)
    assert tip.text.startswith("ratio 0.1: ")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert tip.text.startswith("ratio 0.125: ")
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()
    assert browser.execute_script("return document.querySelectorAll('svg title').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_no_width_scrolls_sideways(browser, pages, tmp_path, width, scheme):
    for name, (path, *_) in pages.items():
        show(browser, path, width, scheme)
        assert sideways(browser) <= 0
        assert browser.execute_script("return document.documentElement.clientWidth") == width
        assert shoot(browser, tmp_path / f"{name}-{width}-{scheme}.png") > 10_000
