"""Small random models of transformers on disk: the oracle of the tests of loading and saving weights."""

import json

import numpy as np
import pytest
import safetensors.numpy

SIZES = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def libraries():
    """Imports torch and transformers; skips the test where torch is not installed."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of parity")
    import transformers

    torch.set_num_threads(1)  # more threads would compete with JAX's
    return torch, transformers


def random_model(kind="Qwen3", seed=0, theta=10_000.0, **changes):
    """Makes a random model of transformers: matrices keep the scale of activations, and norms differ from 1."""
    torch, transformers = libraries()
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    rope = {"rope_type": "default", "rope_theta": theta}
    config = getattr(transformers, f"{kind}Config")(**(SIZES | special | {"rope_parameters": rope} | changes))
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    rng = np.random.default_rng(seed)
    for name, tensor in model.named_parameters():
        drawn = rng.normal(size=tuple(tensor.shape)) / (1 if "embed" in name else tensor.shape[-1] ** 0.5)
        tensor.data = torch.tensor(drawn if tensor.ndim == 2 else 1 + drawn, dtype=torch.float32)
    return model


def edit_config(directory, **changes):
    """Changes fields of a directory's config.json; None removes one."""
    path = directory / "config.json"
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))


def spell_as_transformers_4(directory):
    """Rewrites a config.json of transformers 5 in the spelling of version 4."""
    fields = json.loads((directory / "config.json").read_text())
    theta = fields["rope_parameters"]["rope_theta"]
    edit_config(directory, rope_parameters=None, dtype=None, layer_types=None, rope_theta=theta)
    edit_config(directory, torch_dtype=fields["dtype"])


def edit_tensors(directory, change):
    """Applies `change` to the dict of tensors of a directory's single safetensors file."""
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    change(tensors)
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})


def add_buffers(tensors):
    """What old files hold beside parameters: transformers computes it anew, and what it stores is not read."""
    for layer in ("model.layers.0.self_attn", "model.layers.1.self_attn"):
        tensors[f"{layer}.rotary_emb.inv_freq"] = np.ones(4, np.float64)
        tensors[f"{layer}.rotary_emb.cos_cached"] = np.full((1, 1, 16, 8), np.nan, np.float32)
        tensors[f"{layer}.bias"] = np.tril(np.ones((1, 1, 16, 16), bool))
        tensors[f"{layer}.masked_bias"] = np.array(-1e4, np.float32)
    tensors["model.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    tensors["model.embeddings.position_ids"] = np.arange(16)[None]


def renamed(name_of):
    return lambda tensors: [tensors.update({name_of(name): tensors.pop(name)}) for name in list(tensors)]


SPELLINGS = {
    "buffers": add_buffers,
    "without the prefix": renamed(lambda name: name.removeprefix("model.")),
    "the prefix twice": renamed(lambda name: f"model.{name}"),
    "a tied head as well": lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"]}),
    "a tied head alone": renamed(lambda name: "lm_head.weight" if "embed" in name else name),
}


def stored(directory):
    """Loads all tensors of a directory's safetensors files."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors |= safetensors.numpy.load_file(path)
    return tensors


def their_logits(model, tokens, mask=None):
    """Computes the logits of transformers' model."""
    torch, _ = libraries()
    with torch.no_grad():
        tokens = torch.tensor(np.asarray(tokens, np.int64))
        return model(tokens, attention_mask=None if mask is None else torch.tensor(mask)).logits.float().numpy()
