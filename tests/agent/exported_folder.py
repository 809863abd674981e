"""Writes the directory of an exported model without weights, for agents whose reader needs none."""

import dataclasses
import json

from etils import epath
from fake_reader import MAPS

from prism_jax.decision.calibration import map_to_dict
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.runtime.digests import write_digests


def prism(slow=True):
    slots = {"system": "Watch.", "yes": {"text": " yes", "id": 3}, "no": {"text": " no", "id": 4}}
    calibration = {name: map_to_dict(m) for name, m in MAPS.items() if slow or name.endswith("fast")}
    decided = {"calibration": calibration, "decision": dataclasses.asdict(OperatingPoint())}
    return {"format": 1, "slots": slots, "probability": "in words", "dynamic": "in words", "checkpoint": 8, **decided}


def write(folder, content=None, weights=b"weights"):
    folder.mkdir(exist_ok=True)
    (folder / "prism.json").write_text(json.dumps(prism() if content is None else content))
    if weights is not None:
        (folder / "model.safetensors").write_bytes(weights)
    write_digests(epath.Path(folder))
    return folder
