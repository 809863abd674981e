"""A workdir whose config.json is not a valid config."""

import re

import pytest
import tiny
from etils import epath

from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.training.run import reopen_run
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "found [], expected an object with keys, as prism_jax.train writes it"),
        (b"{", "found broken JSON at column 2 "),
        (b'{"data": {"fold": 9}}', "config.data.fold: found 9, expected 0 to 3 (folds = 4)"),
    ],
)
def test_the_error_for_an_invalid_config_names_the_file_and_leaves_it_unchanged(tmp_path, content, message):
    workdir = epath.Path(tmp_path)
    (workdir / "config.json").write_bytes(content)
    for attempt in (lambda: Workdir(workdir).load_config(), lambda: Workdir(workdir).claim(RunConfig())):
        with pytest.raises(ConfigError, match=f"^{re.escape(f'{workdir}/config.json: {message}')}"):
            attempt()
    assert [path.name for path in workdir.iterdir()] == ["config.json"]
    assert (workdir / "config.json").read_bytes() == content


def test_a_trained_run_without_its_tokenizer_is_not_reopened_with_another(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.claim(tiny.CONFIG)
    with pytest.raises(FileNotFoundError, match=r"/tokenizer\.json: no such file, expected the tokenizer that the run"):
        reopen_run(workdir)


@pytest.mark.parametrize(("key", "other"), [("seed", 1), ("learning_rate", 1e-3), ("steps", 5)])
def test_a_run_is_continued_with_what_it_began_with(tmp_path, key, other):
    workdir, own = Workdir(tmp_path), getattr(tiny.CONFIG.training, key)
    for _ in range(2):
        workdir.claim(tiny.CONFIG)
    before = (tmp_path / "config.json").read_bytes()
    message = rf"config\.json: config\.training\.{key}: found {own}, expected {other}; the folder holds"
    with pytest.raises(ConfigError, match=message):
        workdir.claim(tiny.with_training(**{key: other}))
    assert (tmp_path / "config.json").read_bytes() == before
