"""The page that maps the documentation: its picture of the packages is the order that is enforced."""

import re
import tomllib


def test_the_picture_of_the_packages_has_the_enforced_layers(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    layers = [layer.split(" | ") for layer in contract["layers"] if layer != "__main__"]
    page = (root / "docs" / "index.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"Imports go downwards only:\n\n((?:    .+\n)+)", page)
    assert [re.split(r"   +", line.strip())[0].split() for line in picture.splitlines()] == layers
