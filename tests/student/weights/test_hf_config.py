"""Reading config.json: published files, both spellings, and unsupported features."""

import dataclasses

import pytest

from prism_jax.student import presets
from prism_jax.student.weights.architecture import config_from_hf, config_to_hf

# As published, in the spelling of transformers 4.
QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
SMOLLM2_135M = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}
THETA = {"rope_type": "default", "rope_theta": 1e6}


def changed(base=QWEN3_8B, without=(), **fields):
    return {name: value for name, value in (base | fields).items() if name not in without}


def test_published_files_are_the_presets():
    assert config_from_hf(QWEN3_8B, "float32") == presets.qwen3_8b()
    assert config_from_hf(SMOLLM2_135M, "float32") == presets.smollm2_135m(initializer_range=1 / 24)


@pytest.mark.parametrize("rope", [{"rope_parameters": THETA}, {"rope_parameters": THETA, "rope_theta": 1e6}])
def test_transformers_5_spells_theta_otherwise(rope):
    without = ("rope_theta", "rope_scaling", "torch_dtype")
    assert config_from_hf(changed(without=without) | rope, "float32") == presets.qwen3_8b()


def test_dtype_is_the_one_asked_for():
    config = config_from_hf(QWEN3_8B, "bfloat16")
    assert (config.dtype, config.param_dtype) == ("bfloat16", "bfloat16")


@pytest.mark.parametrize(
    "config",
    [
        presets.qwen3_4b(),
        presets.smollm2_360m(initializer_range=0.05, rope_theta=12_345.0, norm_epsilon=3e-5, max_positions=77),
    ],
)
def test_what_is_written_is_read_back(config):
    assert config_from_hf(config_to_hf(config, "bfloat16"), "float32") == config
    assert dataclasses.replace(config, qk_norm=not config.qk_norm) != config


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_fields_left_out_are_what_transformers_takes_them_for(kind):
    transformers = pytest.importorskip("transformers")
    without = ("head_dim", "num_key_value_heads", "tie_word_embeddings", "initializer_range")
    fields = changed(QWEN3_8B if kind == "qwen3" else SMOLLM2_135M, without=without)
    theirs = transformers.AutoConfig.for_model(**fields)
    ours = config_from_hf(fields, "float32")
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
    assert ours.tied == theirs.tie_word_embeddings
    assert ours.initializer_range == theirs.initializer_range
    assert ours.num_kv_heads == ours.num_heads  # both config classes of transformers read None this way
