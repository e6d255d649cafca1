"""Which cases of a long series `make test` runs. The others are marked `slow`: `make test-all` runs all of them."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_except(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Mark all cases of a parametrized test as slow, except these.

    Raises:
        ValueError: one of `quick` is not among the cases, for example after it got another name.
    """
    cases = list(cases)
    absent = [one for one in quick if one not in cases]
    if absent:
        raise ValueError(f"no such cases: {absent}")
    return [case if case in quick else slow(case) for case in cases]


def slow_but_each(number: int, cases: Iterable[Any]) -> list[Any]:
    """Mark all cases of a parametrized test as slow, except the first of each `number` of them."""
    return [slow(case) if at % number else case for at, case in enumerate(cases)]


def slow(case: Any) -> Any:
    """Mark a case of a parametrized test as slow."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
