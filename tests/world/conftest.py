"""What whole brokers leave behind when their world ends in the middle of something."""

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

#: A broker that is unwound makes coroutines in its ``finally`` clauses, which are never awaited.
_UNWOUND = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Expect these coroutines in the tests of this folder."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(_UNWOUND)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect them in the test that has made them, and not in one of another folder."""
    yield
    gc.collect()
