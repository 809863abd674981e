"""Exports a tiny student without training."""

from etils import epath

from prism_jax.runs.export import TURN_END, export_base, write_tokenizer
from prism_jax.student.weights import save_hf


def export(folder, template, model, params):
    """Writes `folder/weights` and exports them to `folder/model`, which is returned."""
    weights, tokenizer = epath.Path(folder) / "weights", template.tokenizer
    weights.mkdir()
    ids = {"eos_token_id": tokenizer.special(TURN_END), "pad_token_id": tokenizer.pad}
    save_hf(weights, model, params, dtype=None, **ids)
    write_tokenizer(weights, tokenizer, 2048)
    exported = epath.Path(folder) / "model"
    export_base(weights, exported)
    return exported
