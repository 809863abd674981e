"""The notebooks as files: valid, without outputs, with a badge and an install cell, and links that lead somewhere."""

import pathlib
import re

import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
BADGE = "https://colab.research.google.com/github/OWNER/prism_jax/blob/main/notebooks/"


def cells(path, kind):
    """The sources of a notebook's cells of one kind."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def test_the_notebooks_are_those_of_the_table():
    listed = re.findall(r"^\| \[(\w+)\]\((\w+\.ipynb)\)", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert [f"{name}.ipynb" for name, _ in listed] == [path for _, path in listed] == [p.name for p in NOTEBOOKS]
    assert len(listed) == 8


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_stores_no_output(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_opens_in_colab_and_installs_itself_there(path):
    title = cells(path, "markdown")[0]
    assert re.match(r"# \S", title)
    assert f"]({BADGE}{path.name})" in title
    install = cells(path, "code")[0]
    assert 'find_spec("prism_jax") is None' in install
    assert re.search(r'%pip install --quiet "prism_jax\[\S+\] @ git\+https://github.com/OWNER/prism_jax"', install)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_link_of_a_notebook_leads_somewhere(path):
    links = [link for text in cells(path, "markdown") for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [link for link in links if not link.startswith("https://")]
    assert local
    for link in local:
        target, _, anchor = link.partition("#")
        page = (path.parent / target).resolve()
        assert page.is_file(), link
        headings = re.findall(r"^#+ +(.+?) *$", page.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, link


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_extra_that_a_notebook_installs_exists(path):
    (extras,) = re.findall(r"prism_jax\[([\w,]+)\]", cells(path, "code")[0])
    setup = (FOLDER.parent / "setup.py").read_text(encoding="utf-8")
    assert [extra for extra in extras.split(",") if f'"{extra}": ' not in setup] == []
