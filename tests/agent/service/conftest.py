"""Servers of an agent with state, for tests that ask them over HTTP."""

import contextlib

import pytest


@pytest.fixture
def clock():
    from visitor import Clock

    return Clock()


@pytest.fixture
def start(tmp_path):
    """Starts servers of the state in this test's folder, or in another one, and stops them in the end."""
    from served import Stateful

    with contextlib.ExitStack() as stack:
        yield lambda folder=None, **options: stack.enter_context(Stateful(folder or tmp_path / "state", **options))


@pytest.fixture
def served(start, clock):
    return start(clock=clock)


@pytest.fixture
def anyio_backend():
    """What runs tests that are coroutines."""
    return "asyncio"


@pytest.fixture
async def together(tmp_path):
    """Three owners of partitions in this process."""
    from test_divided import Together

    together = Together(tmp_path)
    await together.scale(3)
    yield together
    await together.stop()


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A server for requests that change nothing."""
    from served import Stateful
    from visitor import Clock

    with Stateful(tmp_path_factory.mktemp("untouched") / "state", clock=Clock()) as running:
        yield running
