"""Endpoints and clients for the tests of the remote client."""

import contextlib

import pytest
from asking import echo, endpoint_of

from prism_jax.remote.endpoints import RemoteConfig
from prism_jax.remote.fake import FakeEndpoint
from prism_jax.remote.jobs import open_clients


@pytest.fixture
def remote(tmp_path):
    return RemoteConfig(str(tmp_path / "cache.sqlite"), budget=1.0)


@pytest.fixture
def connected(remote):
    """Opens a fake endpoint, or another server, and a client of it: `with connected(...) as (fake, client)`."""

    @contextlib.contextmanager
    def connect(faults=None, brain=echo, config=remote, dry_run=False, server=None, **changes):
        with (
            server or FakeEndpoint(brain, faults) as fake,
            open_clients(config, {"only": endpoint_of(fake, **changes)}, dry_run=dry_run) as clients,
        ):
            yield fake, clients.by_name["only"]

    return connect
