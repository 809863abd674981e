"""The documentation builds as a site without a warning, shows every public function, and asks nobody anything."""

import html
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui", reason="selenium is missing").WebDriverWait

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]

# Opening any connection but to this machine is an error, as on a machine without a network.
WITHOUT_NETWORK = """
import socket, sys
def refuse(self, address, *_):
    raise OSError(f"found a connection to {address}, expected none while the site is built")
socket.socket.connect = socket.socket.connect_ex = refuse
from mkdocs.__main__ import cli
cli()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", WITHOUT_NETWORK, "build", "--strict", f"--site-dir={folder}"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_every_page_of_the_folder_is_on_the_site(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages | {"overview", "contributing", "changelog", "notebooks"} <= {path.stem for path in site.glob("*.html")}
    assert {path.suffix for path in site.iterdir() if path.is_file()} <= {".html", ".inv", ".xml", ".gz"}


def test_the_reference_shows_every_function_of_the_decision_library(site):
    """The functions are those that the tests of the reference page take for public."""
    sys.path.insert(0, str(ROOT / "tests" / "decision"))
    from test_docs_decision import MODULES, exported

    for module in MODULES:
        page = (site / "api" / f"prism_jax.decision.{module}.html").read_text(encoding="utf-8")
        shown = set(re.findall(r'id="prism_jax\.decision(?:\.\w+)*\.(\w+)"', page))
        functions = {name for name, value in exported(module).items() if callable(value) and hasattr(value, "__code__")}
        assert functions and functions - shown == set(), module


def test_nothing_of_a_page_comes_from_another_machine(site):
    loaded = re.compile(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(https?:)?//|<link\b[^>]*\bhref="(https?:)?//')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []


def test_every_link_within_the_site_leads_somewhere(site):
    """Anchors too. MkDocs checks the links of the pages themselves; this covers navigation and reference."""
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html") if path.name != "404.html"}
    ids = {path: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for path, text in texts.items()}
    broken = []
    for path, text in texts.items():
        for link in set(re.findall(r'<a\b[^>]*\bhref="([^"]+)"', text)):
            if re.match(r"https?:|mailto:", link):
                continue
            target, _, anchor = html.unescape(link).partition("#")
            page = (path.parent / target).resolve() if target else path
            if page.is_dir():
                page /= "index.html"
            if not page.exists() or (
                anchor and page in ids and anchor not in ids[page] and not anchor.startswith("__")
            ):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_the_search_finds_the_docstrings(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert "api/prism_jax.decision.gate.html#prism_jax.decision.gate.decide" in places


def test_the_search_box_finds_pages_that_are_opened_from_the_disk(site, browser):
    browser.get(f"{(site / 'index.html').as_uri()}?q=scopes")
    found = WebDriverWait(browser, 30).until(lambda _: browser.find_elements("class name", "md-search-result__link"))
    assert any("service.html" in one.get_attribute("href") for one in found)
