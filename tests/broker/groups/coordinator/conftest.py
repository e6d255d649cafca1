"""A coordinator for every test."""

import pytest

from tests.broker.groups.support import Service


@pytest.fixture
async def service() -> Service:
    """A coordinator that has loaded its only partition."""
    return await Service().loaded()
