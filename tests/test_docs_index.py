"""The pages of the documentation: their number, their first lines, and the picture of the packages on the first one."""

import re
import tomllib


def test_the_picture_of_the_packages_has_the_enforced_layers(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    layers = [layer.split(" | ") for layer in contract["layers"] if layer != "__main__"]
    page = (root / "docs" / "index.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"Imports go downwards only:\n\n((?:    .+\n)+)", page)
    assert [re.split(r"   +", line.strip())[0].split() for line in picture.splitlines()] == layers


def test_every_page_says_first_who_needs_it_and_what_it_answers(root):
    pages = {path.name: path.read_text(encoding="utf-8") for path in (root / "docs").glob("*.md")}
    assert 10 < len(pages) - 1 <= 20  # beside the index, which is their map
    first = re.compile(r"# .+\n\nFor [^\n]+(?:\n[^\n]+)*\?\n\n")
    assert [name for name, text in pages.items() if not first.match(text)] == []
