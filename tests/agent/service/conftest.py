"""A server for the tests of the person's page; other files have servers of their own."""

import pytest


@pytest.fixture
def clock():
    from visitor import Clock

    return Clock()


@pytest.fixture
def served(tmp_path, clock):
    from served import Stateful

    with Stateful(tmp_path / "state", clock=clock) as running:
        yield running.ready()
