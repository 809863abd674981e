"""Models of transformers with our parameters: the oracle of the parity tests."""

import tempfile

import pytest

from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import save_hf


def reference(config, params):
    """The exported model as transformers loads it: Qwen3 with q/k norm, else Llama."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of parity")
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # more threads would compete with JAX's
    with tempfile.TemporaryDirectory() as folder:
        save_hf(folder, Qwen3(config), params)
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    assert type(model).__name__ == ("Qwen3ForCausalLM" if config.qk_norm else "LlamaForCausalLM")
    return model.eval()
