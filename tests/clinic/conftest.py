"""Names for the clinic."""

import uuid

import pytest


@pytest.fixture
def fresh() -> str:
    """A name for a topic and a group that no other test uses."""
    return f"clinic-{uuid.uuid4().hex[:8]}"
