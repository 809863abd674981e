"""Fixtures for the tests of streams."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    """Calls without the run-time checks of types, which would refuse a wrong value before the function does."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
