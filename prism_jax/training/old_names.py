"""The config keys that have been renamed, so that the runs of an older version can still be read.

Only what a run saved is upgraded. A config file or a flag that names an old key is an error that names the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prism_jax.runtime.config import ConfigError

RENAMED = {
    "data.context": "packing.context",
    "data.row_tokens": "packing.row_tokens",
    "data.buckets": "packing.buckets",
    "data.packing": "packing.unit",
    "data.held_out": "data.validation",
    "prompt.vocabulary_size": "prompt.vocab_size",
    "student.vocabulary_size": "student.vocab_size",
    "student.width": "student.hidden_dim",
    "student.layers": "student.num_layers",
    "student.heads": "student.num_heads",
    "student.kv_heads": "student.num_kv_heads",
    "student.ffn": "student.mlp_dim",
    "training.data": "mesh.data",
    "training.fsdp": "mesh.fsdp",
    "training.tensor": "mesh.tensor",
    "training.soft_votes": "training.soft_labels",
}
"""Old dotted key to the key's name today."""

_RENAMED_VALUES = {"data.packing": {"rows": "decisions"}}


def upgrade(tree: Mapping[str, Any], place: str = "config") -> dict[str, Any]:
    """The config tree of an older run with its values under today's keys.

    Keys that are in neither version stay where they are, so that the reader of the result reports them.

    Args:
      tree: The tree as it was saved; it is not changed.
      place: Name of the tree in messages.

    Raises:
      ConfigError: naming both keys, when a value stands under its old key and its new one.
    """
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in tree.items()}
    for old, new in RENAMED.items():
        (old_section, old_key), (new_section, new_key) = old.split("."), new.split(".")
        source, target = result.get(old_section), result.get(new_section, {})
        if not isinstance(source, dict) or not isinstance(target, dict) or old_key not in source:
            continue
        if new_key in target:
            raise ConfigError(f"{place}.{old}: found beside {place}.{new}, its name today; expected one of the two")
        value = source.pop(old_key)
        names = _RENAMED_VALUES.get(old, {})
        target[new_key] = names.get(value, value) if isinstance(value, str) else value
        result[new_section] = target
    return result
