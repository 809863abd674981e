import pytest
from absl import flags
from absl.testing import flagsaver

from prism_jax.runtime import distributed


@pytest.mark.parametrize(
    ("asked", "environment", "folder"),
    [
        ("off", {"JAX_COMPILATION_CACHE_DIR": "/a", "HOME": "/h"}, None),
        ("/b", {"JAX_COMPILATION_CACHE_DIR": "/a", "HOME": "/h"}, "/b"),
        (None, {"JAX_COMPILATION_CACHE_DIR": "/a", "HOME": "/h"}, "/a"),
    ],
)
def test_flag_then_environment_say_where_compiled_programs_are_kept(asked, environment, folder):
    assert distributed.cache_folder(asked, environment) == folder


def test_by_default_they_are_kept_in_the_users_cache_by_kind_of_machine():
    found = distributed.cache_folder(None, {"HOME": "/h"})
    assert found.startswith("/h/.cache/prism_jax/")
    moved = distributed.cache_folder(None, {"HOME": "/h", "XDG_CACHE_HOME": "/x"})
    assert moved == found.replace("/h/.cache", "/x")


def test_half_a_description_of_the_processes_is_refused(monkeypatch):
    monkeypatch.setattr(distributed.jax.config, "update", lambda *_: None)
    monkeypatch.setattr(distributed.jax.distributed, "initialize", pytest.fail)
    if "distributed" not in flags.FLAGS:
        distributed.define_flags()
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    half = flagsaver.flagsaver(distributed=True, coordinator="localhost:1", processes=2, process=None)
    with half, pytest.raises(ValueError, match=r"^process: found none, expected all of --coordinator, --processes, --"):
        distributed.start()
