"""The example session in docs/student.md prints what the page shows."""

import doctest
import pathlib

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "student.md"


def test_the_session_prints_what_the_page_says():
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(encoding="utf-8"), {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) == 14, "the blocks must have been found"
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
