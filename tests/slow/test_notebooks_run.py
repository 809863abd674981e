"""Every notebook runs from top to bottom in an empty folder, and every figure that it promises is drawn."""

import os
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
FIGURES = {
    "01_quickstart": 4,
    "02_gate_and_costs": 5,
    "03_calibration": 5,
    "04_fast_and_slow": 4,
    "05_your_own_agent": 2,
    "06_export_to_transformers": 2,
    "07_train_on_gpu": 2,
    "08_any_decision_model": 1,
}
TRAINS_LONG = "01_quickstart"
"""Optimised programs train it in less time than they take longer to compile."""


@pytest.fixture(scope="module", params=FIGURES)
def executed(request, tmp_path_factory):
    """A notebook's name and its cells after a run."""
    notebook = nbformat.read(FOLDER / f"{request.param}.ipynb", as_version=4)
    folder = tmp_path_factory.mktemp(request.param)
    environment = os.environ | {
        "PYTHONPATH": str(FOLDER.parent),
        "JAX_PLATFORMS": "cpu",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": str(folder / ".ipython"),
    }
    if request.param == TRAINS_LONG:
        del environment["XLA_FLAGS"], environment["JAX_DISABLE_MOST_OPTIMIZATIONS"]
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )  # raises for a cell that fails
    client.execute(env=environment)
    assert {path.name for path in folder.iterdir()} <= {".ipython"}, "a notebook leaves files where it stands"
    return request.param, notebook.cells


def printed(cells):
    """What the cells printed to standard output."""
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


# What each notebook says in words, as its cells print it.
FINDINGS = {
    "02_gate_and_costs": ["r = 0.5 decisions that differ: 0", "r = 4   decisions that differ: 0"],
    "08_any_decision_model": ["offer: 0.", "silent: 0."],
    "05_your_own_agent": ["logit", "accept: ", "realised cost per step, from words alone"],
    "06_export_to_transformers": ["largest difference: "],
    "07_train_on_gpu": ["a rehearsal with a tiny model on cpu"],
}


def test_a_notebook_draws_its_figures_and_prints_its_findings(executed):
    name, cells = executed
    drawn = [
        output
        for cell in cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "display_data" and "image/png" in output.data
    ]
    assert len(drawn) == FIGURES[name]
    text = printed(cells)
    assert [finding for finding in FINDINGS.get(name, []) if finding not in text] == []
    if name == "01_quickstart":
        assert float(text.partition("the gate closes ")[2].partition("%")[0]) >= 50
    if name == "02_gate_and_costs":
        counts = [line.split()[-1] for line in text.splitlines() if line.startswith(("true positives", "of the gate"))]
        assert len(counts) == 2 and counts[0] == counts[1]
    if name == "06_export_to_transformers":
        assert float(text.partition("largest difference: ")[2].split()[0]) < 1e-4
