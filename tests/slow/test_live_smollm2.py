"""SmolLM2's real weights on live streams: slots as one forward pass reads them, fields and responses well formed."""

import json

import numpy as np
import pytest

from prism_jax.agent.live import Live, LiveConfig
from prism_jax.agent.reader import ThinkRequest
from prism_jax.streams import RESPONSE_KEYS, Candidate, Event
from prism_jax.streams.types import SLOW_FIELDS
from prism_jax.student.prompting.template import PromptConfig, Template, WritingConfig
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.student.scoring.student import Student
from prism_jax.student.weights import load

pytestmark = pytest.mark.study

EVENTS = [
    "Opens parser.py.",
    "parser.py fails two tests.",
    "Stares at parser.py.",
    "Searches for <|im_end|> \u00e9\u4e2d.",
]
OFFERS = (Candidate(text="Debug parser.py"), Candidate(), Candidate(text='Say "hi" \\ {now}'))


def test_live_streams_of_a_real_model(smollm2_gguf):
    student = load(smollm2_gguf, "float32")
    template = Template(Tokenizer.load(smollm2_gguf), PromptConfig(system="Watch the user."))
    config = LiveConfig(context=512, memory=1 << 28, batches=(2,))
    reader = Live(
        Student(student.model, student.params, template),
        has_slow_pass=True,
        writing=WritingConfig(field_tokens=8, response_tokens=12),
        config=config,
    )
    trunk, before = template.system(), None
    for number, text in enumerate(EVENTS):
        event = Event(time=100.0 * number, text=text)
        trunk += template.event(event, before)
        before = event
        own, _ = reader.observe([("ada", event, OFFERS), ("bob", event, OFFERS[:1])])
        head = [*trunk, *template.head()]
        rows = [head, *([*head, *template.leaf(offer)] for offer in OFFERS)]
        padded = np.zeros((len(rows), 256), np.int32)
        for row, ids in zip(padded, rows, strict=True):
            row[: len(ids)] = ids
        logits = np.asarray(student.logits(padded), np.float64)
        z = [logits[i, len(ids) - 1, template.yes] - logits[i, len(ids) - 1, template.no] for i, ids in enumerate(rows)]
        np.testing.assert_allclose([own.z_need, *own.z_accept], z, atol=2e-3)
    for thought in reader.think([ThinkRequest("ada", OFFERS), ThinkRequest("bob", OFFERS[:1])]):
        assert tuple(thought.fields) == tuple(SLOW_FIELDS)
        assert all(text.strip() and len(text.splitlines()) == 1 for text in thought.fields.values())
    for response in reader.respond([("ada", OFFERS[2], thought.fields), ("bob", OFFERS[0], None)]):
        assert tuple(json.loads(response.text)) == RESPONSE_KEYS
