"""The lines that the pages show are streams, and the example file trains by the command beside it."""

import re
import shlex

import forked
import pytest

from prism_jax.runs.pipeline import check_evaluable
from prism_jax.streams.jsonl import decode_stream, read_streams
from prism_jax.streams.sources import DataConfig
from prism_jax.training.run import resolve
from prism_jax.training.run_config import RunConfig

EXAMPLE = "docs/examples/streams.jsonl"


@pytest.mark.parametrize(("page", "count"), [("training.md", 3), ("decision_models.md", 2)])
def test_lines_of_the_pages_are_streams_with_labels(root, page, count):
    block = re.search(r'^```json\n(\{"id": .*?)^```', (root / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)[1]
    streams = [decode_stream(line.encode(), page) for line in block.splitlines()]
    assert len({stream.id for stream in streams}) == len(streams) == count
    assert {step.y_need for stream in streams for step in stream.steps} == {0.0, 1.0}


def test_the_example_can_be_trained_on_calibrated_and_evaluated(root):
    assert len(read_streams(root / EXAMPLE)) == 16
    check_evaluable(resolve(RunConfig(data=DataConfig(name="jsonl", source=str(root / EXAMPLE)))))


@pytest.mark.slow
def test_the_command_beside_the_example_trains(root, tmp_path):
    page = (root / "docs" / "training.md").read_text().replace("\\\n", "")
    (command,) = (line for line in page.splitlines() if EXAMPLE in line)
    python, module, *words = shlex.split(command.replace("runs/own", str(tmp_path / "own")))
    assert (python, module) == ("python", "-m")
    done = forked.run(*words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "own" / "report.html").exists()
