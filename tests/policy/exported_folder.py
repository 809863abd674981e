"""Writes the directory of an exported model without weights, for agents whose reader needs none."""

import dataclasses
import hashlib
import json

from fake_reader import MAPS

from prism_jax.decision.calibration import map_to_dict
from prism_jax.decision.operating_point import OperatingPoint


def prism(slow=True):
    return {
        "format": 1,
        "slots": {"system": "Watch.", "yes": {"text": " yes", "id": 3}, "no": {"text": " no", "id": 4}},
        "probability": "in words",
        "calibration": {name: map_to_dict(m) for name, m in MAPS.items() if slow or name.endswith("fast")},
        "decision": dataclasses.asdict(OperatingPoint()),
        "dynamic": "in words",
        "checkpoint": 8,
    }


def write(folder, content=None):
    folder.mkdir(exist_ok=True)
    data = json.dumps(prism() if content is None else content).encode()
    (folder / "prism.json").write_bytes(data)
    digests = {"prism.json": hashlib.sha256(data).hexdigest(), "model.safetensors": "0" * 64}
    (folder / "digests.json").write_text(json.dumps(digests))
    return folder
