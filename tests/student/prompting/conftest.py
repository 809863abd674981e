"""A tiny student that reads packed rows."""

import jax
import pytest
from packed_streams import make_bushy

from prism_jax.student.qwen3 import Tree, take


@pytest.fixture(scope="module")
def params(model, draw_params):
    return draw_params(model)


@pytest.fixture(scope="module")
def slots(model, params, template):
    """From a batch to the logits of both kinds of slots and the hidden states that predict responses, compiled."""

    def read(batch, window, visible):
        hidden = model.branch_hidden(params, Tree.of(batch), window, visible)
        places = (batch.need_slot, batch.accept_slot)
        answers = [model.answers(params, hidden, place, template.yes, template.no) for place in places]
        return *answers, take(hidden, batch.response_source)

    return jax.jit(read, static_argnums=(1, 2))


@pytest.fixture(scope="session")
def bushy():
    """A stream whose steps have up to three candidates."""
    return make_bushy()
