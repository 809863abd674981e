"""Hugging Face's own models with our parameters: the oracle of parity."""

import jax
import numpy as np
import pytest

# Our name of a block's parameter, and Hugging Face's.
NAMES = {
    "input_norm": "input_layernorm",
    "post_norm": "post_attention_layernorm",
    "attention": "self_attn",
    "kernel": "weight",
}


def state_dict(params, torch):
    """Our parameters under Hugging Face's names: a Linear's weight is [out, in] there, and layers are apart."""
    state = {"model.embed_tokens.weight": params["embedding"], "model.norm.weight": params["final_norm"]["weight"]}
    if "head" in params:
        state["lm_head.weight"] = params["head"]["kernel"].T
    for path, stacked in jax.tree_util.tree_leaves_with_path(params["layers"]):
        name = ".".join(NAMES.get(key.key, key.key) for key in path)
        for i, leaf in enumerate(stacked):
            state[f"model.layers.{i}.{name}"] = leaf.T
    return {name: torch.tensor(np.array(leaf)) for name, leaf in state.items()}


def reference(config, params):
    """Qwen3 with, Llama without the norm of queries and keys."""
    torch = pytest.importorskip("torch", reason="torch is the oracle of parity")
    import transformers

    torch.set_num_threads(1)  # its threads would spin against JAX's
    kind = "Qwen3" if config.qk_norm else "Llama"
    hf_config = getattr(transformers, f"{kind}Config")(
        vocab_size=config.vocabulary_size,
        hidden_size=config.width,
        intermediate_size=config.ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=config.tied,
        attention_bias=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(hf_config).to(torch.float32).eval()
    missing, unexpected = model.load_state_dict(state_dict(params, torch), strict=False)
    assert not unexpected and missing == (["lm_head.weight"] if config.tied else [])
    model.tie_weights()
    return model
