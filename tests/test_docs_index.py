"""The page that maps the documentation: its table of imports is the one that is enforced."""

import pathlib
import re

from test_architecture import EVERYTHING, MAY_IMPORT

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "index.md"


def test_the_table_of_imports_is_the_enforced_one():
    page = PAGE.read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| part \| may import \|\n\|---\|---\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    rows = {}
    for line in table.splitlines():
        parts, words = line.strip("|").split("|")
        allowed = set(re.findall(r"`(\w+)`", words))
        if "all of the above" in words:
            allowed |= EVERYTHING - {"recipes"}
        if "the same" in words:
            allowed |= EVERYTHING
        rows |= dict.fromkeys(re.findall(r"`(\w+)`", parts), allowed)
    assert rows == MAY_IMPORT
