"""A test that ends after its timeout fails, although nothing in it has failed."""

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import EXPIRES, pytest_runtest_call


def ended(expires: float) -> None:
    """End a test whose timeout expires at this time."""
    item: Any = SimpleNamespace(stash=pytest.Stash())
    item.stash[EXPIRES] = expires
    call = pytest_runtest_call(item)
    next(call)
    with pytest.raises(StopIteration):
        call.send(None)


def test_only_a_test_that_ends_after_its_timeout_fails() -> None:
    ended(math.inf)
    with pytest.raises(pytest.fail.Exception, match="only after its timeout"):
        ended(time.monotonic() - 1)


def test_each_test_has_a_timeout(request: pytest.FixtureRequest) -> None:
    assert time.monotonic() < request.node.stash[EXPIRES] < time.monotonic() + 3_600
