import pytest
from etils import epath

from prism_jax.probe.kept_states import copied_weights, copy_weights, describe_states, reading_of
from prism_jax.probe.probe_config import StatesConfig
from prism_jax.runtime.dataclass_config import ConfigError


@pytest.fixture(params=["file", "folder"])
def weights(request, tmp_path):
    """A GGUF file, and a model directory with a file that its states do not depend on."""
    if request.param == "file":
        (tmp_path / "small.gguf").write_bytes(b"tensors")
        return tmp_path / "small.gguf"
    folder = tmp_path / "small"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "readme.md"):
        (folder / name).write_text(name)
    return folder


def test_copied_weights_are_the_ones_of_the_training(weights, tmp_path):
    config = StatesConfig(weights=str(weights), blocks=(2, 4), system="Watch.", context=100)
    about = describe_states(config)
    export = epath.Path(tmp_path / "export")
    export.mkdir()
    copy_weights(weights, export)
    copied = copied_weights(export)
    found = reading_of(copied, about, "probe.json: states")
    assert (found.blocks, found.system, found.context) == ((2, 4), "Watch.", 100)
    assert not (copied / "readme.md").exists()
    changed = copied if copied.is_file() else copied / "model.safetensors"
    changed.write_bytes(b"other")
    with pytest.raises(ConfigError, match=r"found the SHA-256 .* as in probe.json: states: the probe was trained on"):
        reading_of(copied, about, "probe.json: states")
    changed.unlink()
    with pytest.raises((FileNotFoundError, ConfigError)):
        reading_of(copied, about, "probe.json: states")


@pytest.mark.parametrize(("change", "found"), [({"more": 1}, "states.more"), ({"blocks": [2, 1]}, "states.blocks")])
def test_what_a_probe_says_of_its_model_is_checked(weights, change, found):
    about = describe_states(StatesConfig(weights=str(weights)))
    with pytest.raises(ConfigError, match=found):
        reading_of(weights, about | change, "states")
