import jax
import pytest
from absl import flags
from absl.testing import flagsaver

from prism_jax.runtime import distributed


@pytest.mark.parametrize(
    ("requested", "environment", "folder"),
    [
        ("off", {"JAX_COMPILATION_CACHE_DIR": "/a", "HOME": "/h"}, None),
        ("/b", {"JAX_COMPILATION_CACHE_DIR": "/a", "HOME": "/h"}, "/b"),
        (None, {"JAX_COMPILATION_CACHE_DIR": "/a", "HOME": "/h"}, "/a"),
    ],
)
def test_the_flag_and_then_the_environment_name_the_cache_folder(requested, environment, folder):
    assert distributed.cache_folder(requested, environment) == folder


def test_the_default_is_a_folder_per_kind_of_machine_in_the_users_cache():
    found = distributed.cache_folder(None, {"HOME": "/h"})
    assert found.startswith("/h/.cache/prism_jax/")
    moved = distributed.cache_folder(None, {"HOME": "/h", "XDG_CACHE_HOME": "/x"})
    assert moved == found.replace("/h/.cache", "/x")


def test_an_incomplete_description_of_the_processes_is_rejected(monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", pytest.fail)
    if "distributed" not in flags.FLAGS:
        distributed.define_flags()
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    half = flagsaver.flagsaver(distributed=True, coordinator="localhost:1", processes=2, process=None)
    with half, pytest.raises(ValueError, match=r"^process: found none, expected all of --coordinator, --processes, --"):
        distributed.start()
