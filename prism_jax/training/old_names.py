"""Config keys that have been renamed, so that runs of older versions can still be read.

Only saved configs are upgraded. An old key in a config file or a flag is an error that names the new key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prism_jax.runtime.dataclass_config import ConfigError

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
"""Maps each old dotted key to its current name."""

_RENAMED_VALUES = {"data.packing": {"rows": "decisions"}}


def upgrade(tree: Mapping[str, Any], place: str = "config") -> dict[str, Any]:
    """A copy of the config tree of an older run with its values under the current keys.

    Keys that no version knows stay in place, so that whatever parses the result reports them. ConfigError names a value
    that is present under both its old and its new key.
    """
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in tree.items()}
    for old, new in RENAMED.items():
        (old_section, old_key), (new_section, new_key) = old.split("."), new.split(".")
        source, target = result.get(old_section), result.get(new_section, {})
        if not isinstance(source, dict) or not isinstance(target, dict) or old_key not in source:
            continue
        if new_key in target:
            raise ConfigError(f"{place}.{old}: found together with {place}.{new}, its new name; expected only one")
        value = source.pop(old_key)
        names = _RENAMED_VALUES.get(old, {})
        target[new_key] = names.get(value, value) if isinstance(value, str) else value
        result[new_section] = target
    return result
