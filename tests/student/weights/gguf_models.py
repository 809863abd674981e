"""Small GGUF files of transformers' models, written with the names and quantisers of the gguf package."""

import gguf
import numpy as np


def reorder(weight, heads):
    """Reorders query or key rows as llama.cpp does for Llama: the two halves of each head are interleaved."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, model, form="F32", tokens=None, fields=(), rename=lambda name: name):
    """Writes a model of transformers as llama.cpp's converter does, with matrices in `form` and norms in float32."""
    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    for name, value in fields:
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(f"{architecture}.{name}", value)
    if tokens is not None:
        writer.add_token_list(tokens)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, architecture.upper()), config.num_hidden_layers)
    kind = gguf.GGMLQuantizationType[form]
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        if architecture == "llama" and "q_proj" in name:
            values = reorder(values, config.num_attention_heads)
        if architecture == "llama" and "k_proj" in name:
            values = reorder(values, config.num_key_value_heads)
        target = rename(names.get_name(name, try_suffixes=(".weight",)))
        if values.ndim == 1 or form == "F32":
            writer.add_tensor(target, np.ascontiguousarray(values))
        else:
            writer.add_tensor(target, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
