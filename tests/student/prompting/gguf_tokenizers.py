"""GGUF files that hold a tokenizer and no tensors."""

import json


def contents(definition):
    """The GGUF fields of a `tokenizer.json`: tokens by id, merges, types."""
    content = json.loads(definition)
    added = {token["id"]: token for token in content["added_tokens"]}
    tokens = {i: token for token, i in content["model"]["vocab"].items()} | {i: t["content"] for i, t in added.items()}
    return {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": [tokens[i] for i in range(len(tokens))],
        "token_type": [3 if added.get(i, {}).get("special") else 4 if i in added else 1 for i in range(len(tokens))],
        "merges": [" ".join(merge) for merge in content["model"]["merges"]],
        "eos_token_id": next(i for i, t in added.items() if t["content"] == "<|im_end|>"),
    }


def write(path, fields, architecture="qwen3"):
    """A GGUF file with these fields of `tokenizer.ggml` and no tensors."""
    import gguf  # an extra

    writer = gguf.GGUFWriter(path, architecture)
    for name, value in fields.items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, list: writer.add_array}
        add[type(value)](name if name == "tokenizer.chat_template" else f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
