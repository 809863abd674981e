"""The page's limits of inputs are those of the code."""

import re

import pytest

from prism_jax.agent.steps import MOST_CANDIDATES, MOST_EVENT_BYTES, MOST_NAME
from prism_jax.evaluation.answers.log_files import MOST_BYTES, MOST_ROWS
from prism_jax.evaluation.answers.log_tables import MOST_CONTEXT
from prism_jax.runtime import gguf_file
from prism_jax.runtime.files import MOST_LINE_BYTES
from prism_jax.scores.schema import MOST_EXTRA
from prism_jax.streams.types import MOST_CHARACTERS, MOST_KEYS
from prism_jax.student.weights.safetensors_in import MOST_HEADER_BYTES
from studies.audit_tables import reading

LIMITS = {
    "a line of a JSONL file": (MOST_LINE_BYTES,),
    "the text of an event": (MOST_CHARACTERS,),
    "the fields of a rationale": (MOST_KEYS,),
    "columns of a scores table": (MOST_EXTRA,),
    "an acceptance log": (MOST_BYTES, MOST_ROWS, MOST_CONTEXT),
    "a table of printed numbers": (reading.MOST_BYTES, reading.MOST_ROWS),
    "an event of the agent": (MOST_EVENT_BYTES, MOST_CANDIDATES, MOST_NAME),
    "the header of a safetensors file": (MOST_HEADER_BYTES,),
    "a GGUF file": (gguf_file.MAX_FIELDS, gguf_file.MAX_TENSORS, gguf_file.MAX_ENTRIES, gguf_file.MAX_TEXT),
}


@pytest.mark.parametrize("start", LIMITS)
def test_the_page_gives_the_limits_of_the_code(root, start):
    page = (root / "docs" / "training.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {start}.* \| (.*) \|$", page, re.MULTILINE)
    assert tuple(int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", row)) == LIMITS[start]
