"""Every reference inside the repository resolves: links, anchors, paths, sections, dotted names, the citation file."""

import collections
import pathlib
import pkgutil
import re

import pytest
import yaml

import prism_jax

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("prism_jax", "studies", "docs", "configs", "benchmarks", "launch", "notebooks", "tests")
TEXT = {".py", ".md", ".sh", ".toml", ".cff", ".jinja"}
FILES = sorted(
    (
        {path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXT}
        | {path for path in ROOT.iterdir() if path.is_file() and (path.suffix in TEXT or path.name == "Makefile")}
    )
    - {pathlib.Path(__file__)}  # its patterns look like references
)
PAGES = [path for path in FILES if path.suffix == ".md"]
DECISION = ("audbc", "calibration", "curation", "drift", "gate", "losses", "metrics")
DECISION += ("policies", "surface", "uncertainty")


def named(path):
    return str(path.relative_to(ROOT))


def text_of(path):
    """The content of a file, with the line breaks of prose and comments as single spaces."""
    return re.sub(r"\s*\n(?:\s|# )*", " ", path.read_text(encoding="utf-8"))


def prose(page):
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors that GitHub gives to a page's headings."""
    seen, found = collections.Counter(), set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
        seen[slug] += 1
    return found


def sections():
    """The numbers of the sections of docs/maths.md."""
    page = (ROOT / "docs" / "maths.md").read_text(encoding="utf-8")
    return [int(number) for number in re.findall(r"^## (\d+)\. \S", page, re.MULTILINE)]


def test_every_link_of_a_page_leads_somewhere():
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if re.match(r"https?://|mailto:", link):
                continue
            target, _, anchor = link.partition("#")
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{named(page)}: {link}")
    assert broken == []


def test_every_path_that_is_mentioned_exists():
    """Placeholders are written in capitals, such as configs/NAME.py, and paths below another folder are not ours.

    Nor are those of `same_numbers.py`, which are of folders that it makes.
    """
    pattern = re.compile(rf"(?<![\w./}}-])(?:{'|'.join(FOLDERS)})/[\w./-]*")
    missing = []
    for path in (path for path in FILES if path.name != "same_numbers.py"):
        for mentioned in pattern.findall(text_of(path)):
            wanted = mentioned.rstrip(".")
            if not re.search(r"/[A-Z_]+(\.|$)", wanted) and not (ROOT / wanted).exists():
                missing.append(f"{named(path)}: {mentioned}")
    assert missing == []


def test_every_section_that_is_cited_has_its_heading():
    assert len(sections()) >= 11
    assert sections() == list(range(1, len(sections()) + 1))
    cited = re.compile(r"docs/maths\.md, sections? (\d+(?:(?:,| and|, and) \d+)*)")
    unknown, count = [], 0
    for path in FILES:
        for numbers in cited.findall(text_of(path)):
            count += 1
            unknown += [f"{named(path)}: {n}" for n in re.findall(r"\d+", numbers) if int(n) not in sections()]
    for number in re.findall(r"\bsection (\d+)", prose(ROOT / "docs" / "maths.md")):
        unknown += [f"docs/maths.md: {number}"] * (int(number) not in sections())
    assert unknown == []
    assert count > 0


def test_nothing_outside_the_repository_is_cited():
    outside = re.compile(
        r"\b(?:maths|design|style) sections?\b|shared/(?:design|maths|style|paper)\b|\b(?:design|style)\.md\b"
        r"|\bpaper\.tex\b"
    )
    found = [f"{named(path)}: {match}" for path in FILES for match in outside.findall(text_of(path))]
    assert found == []


def unresolved(name):
    """The error of looking a dotted name up, if there is one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        return str(error)
    return None


def test_every_dotted_name_is_found_by_import():
    """In pages anywhere, in code where backticks mark it; the decision library's modules by their short names too."""
    names = collections.defaultdict(set)
    for path in FILES:
        text = text_of(path)
        places = [text] if path in PAGES else re.findall(r"`([^`]*)`", text)
        for place in places:
            for name in re.findall(r"(?<![\w./])prism_jax(?:\.[A-Za-z_]\w*)+(?![\w*]|\.\*)", place):
                names[name].add(named(path))
    for page in PAGES:
        for module, name in re.findall(rf"`(?:losses\.)?({'|'.join(DECISION)})\.([a-z_]\w*)[`(]", prose(page)):
            if name not in ("json", "jsonl", "py"):
                names[f"prism_jax.decision.{module}.{name}"].add(named(page))
    assert len(names) > 20
    assert {name: (sorted(names[name]), error) for name in sorted(names) if (error := unresolved(name))} == {}


def test_every_page_is_in_the_reading_order():
    links = re.findall(r"\]\(([^)#\s]+)", prose(ROOT / "docs" / "index.md"))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} <= set(links)
    assert "docs/index.md" in (ROOT / "README.md").read_text(encoding="utf-8")


OLDER_FORMS = r"percentile (?:interval|bootstrap)|resamples of whole"
WHERE_THEY_ARE = r"1,000 units"


def test_pages_name_older_forms_of_intervals_only_where_they_are_used():
    """Up to 1,000 units, intervals are the studentised jackknife's, and no number of a page has another."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
    paragraphs = [(named(page), part) for page in pages for part in page.read_text(encoding="utf-8").split("\n\n")]
    older = [(page, part) for page, part in paragraphs if re.search(OLDER_FORMS, " ".join(part.split()))]
    assert [(page, part) for page, part in older if not re.search(WHERE_THEY_ARE, " ".join(part.split()))] == []


@pytest.fixture(scope="module")
def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_is_that_of_the_package(citation):
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["type"]) == ("prism_jax", "software")
    assert citation["message"]
    assert citation["version"] == prism_jax.__version__ == re.search(r'version="([^"]+)"', setup)[1]
    assert citation["license"] == re.search(r'license="([^"]+)"', setup)[1]
    assert citation["authors"] == [{"name": "The prism_jax authors"}]


def test_the_citation_names_the_paper_and_the_benchmark(citation):
    paper, benchmark = citation["references"]
    assert paper["title"].startswith("PRISM: Festina Lente Proactivity")
    assert benchmark["url"].endswith("2410.12361")
    for reference in (paper, benchmark):
        assert {"type", "title", "authors"} <= reference.keys()
        assert isinstance(reference["year"], int)
        for author in reference["authors"]:
            assert author.keys() in ({"family-names", "given-names"}, {"name"})


def test_commands_are_spelled_in_one_way():
    """As `python -m prism_jax NAME`; the README says once that train, evaluate and export are also modules."""
    other = {
        f"{named(path)}: {spelling}"
        for path in FILES
        if path.parent != ROOT / "tests"
        for spelling in re.findall(r"-m prism_jax\.(?:commands\.)?(?:\w+)(?![.\w])", path.read_text(encoding="utf-8"))
    }
    assert other == {"README.md: -m prism_jax.train"}
