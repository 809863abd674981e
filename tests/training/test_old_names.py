"""Configs saved by older versions of the code."""

import copy
import dataclasses
import json
import re

import pytest
from etils import epath

from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict, to_dict
from prism_jax.training.checkpoints.checkpoint import CheckpointError, score
from prism_jax.training.old_names import RENAMED, upgrade
from prism_jax.training.run_config import MeshConfig, PackingConfig, RunConfig
from prism_jax.training.workdir import Workdir

# Every renamed key has a value here that is not its default.
CONFIG = dataclasses.replace(
    RunConfig(),
    packing=PackingConfig(context=512, unit="decisions", row_tokens=256, buckets=3),
    mesh=MeshConfig(data=2, fsdp=2, tensor=4),
    training=dataclasses.replace(RunConfig().training, soft_labels=True),
    data=dataclasses.replace(RunConfig().data, validation=0.25),
    prompt=dataclasses.replace(RunConfig().prompt, vocab_size=600),
    student=dataclasses.replace(
        RunConfig().student, vocab_size=512, hidden_dim=32, num_layers=5, num_heads=6, num_kv_heads=3, mlp_dim=80
    ),
)


def older(config, keys=RENAMED):
    """Returns the config tree as a version before the renaming of `keys` saved it."""
    tree = to_dict(config)
    tree["packing"].pop("max_decisions", None)  # that version did not have it
    for old in keys:
        (old_section, old_key), (section, key) = old.split("."), RENAMED[old].split(".")
        tree[old_section][old_key] = tree[section].pop(key)
    if "data.packing" in keys:
        tree["data"]["packing"] = {"streams": "streams", "decisions": "rows"}[tree["data"]["packing"]]
    return {section: values for section, values in tree.items() if values}


@pytest.mark.parametrize("config", [RunConfig(), CONFIG], ids=["default", "changed"])
def test_the_config_of_an_older_run_loads(tmp_path, config):
    tree = older(config)
    assert "packing" not in tree
    assert "mesh" not in tree
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tree))
    assert Workdir(tmp_path).load_config() == config
    Workdir(tmp_path).claim(config)  # the run can be resumed
    assert json.loads(path.read_text()) == tree


@pytest.mark.parametrize("old", RENAMED)
def test_a_config_with_some_old_keys_loads(old):
    """Versions between two renamings saved some keys under the old name and others under the new one."""
    tree = older(CONFIG, [old])
    before = copy.deepcopy(tree)
    assert from_config_dict(RunConfig, upgrade(tree)) == CONFIG
    assert tree == before


def test_a_config_with_current_keys_is_unchanged():
    assert upgrade(to_dict(CONFIG)) == to_dict(CONFIG)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"student": {"width": 8, "depth": 3}}, "config.student.depth: unknown key; "),
        ({"studnet": {"width": 8}}, "config.studnet: unknown key; did you mean 'student'?"),
        ({"data": {"context": 8}, "packing": 3}, "config.data.context: unknown key; "),
        ({"data": {"packing": "row"}}, "config.packing.unit: found 'row', expected one of 'streams', 'decisions'"),
        ({"data": {"packing": ["rows"]}}, "config.packing.unit: found ['rows'], expected one of "),
        ({"training": 3}, "config.training: found 3, expected a section with keys"),
        (
            {"data": {"context": 8}, "packing": {"context": 8}},
            "config.data.context: found together with config.packing.context, its new name; expected only one",
        ),
    ],
)
def test_keys_and_values_that_no_version_knows_are_errors(tree, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        from_config_dict(RunConfig, upgrade(tree))


@pytest.mark.parametrize("old", RENAMED)
def test_the_error_for_an_old_key_names_the_new_one(old):
    section, key = old.split(".")
    message = f"config.{old}: unknown key; it was renamed to {RENAMED[old]!r}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        from_config_dict(RunConfig, {section: {key: 1}}, renamed=RENAMED)


def test_the_score_of_an_older_checkpoint_is_read(tmp_path):
    file = tmp_path / "metrics" / "metrics"
    file.parent.mkdir()
    for metrics, expected in (
        ({"held_out_nll": 0.5}, 0.5),
        ({"validation_nll": 0.25, "held_out_nll": 0.5}, 0.25),
        ({"held_out_need": 0.5}, None),
    ):
        file.write_text(json.dumps(metrics))
        assert score(epath.Path(tmp_path)) == expected
    file.write_text('{"held_out_nll": "0.5"}')
    with pytest.raises(CheckpointError, match=r"validation_nll = '0\.5' in metrics/"):
        score(epath.Path(tmp_path))
