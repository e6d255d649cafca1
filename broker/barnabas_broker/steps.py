"""Work that may be interrupted: generators that yield after each element. Pure.

:class:`barnabas_broker.handlers.lane.Lane` runs them a slice at a time, so that no request holds the event loop.
"""

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")

#: Work that yields where it may be interrupted, and returns its result.
Steps = Generator[None, None, T]


def each(items: Iterable[A], work: Callable[[A], T]) -> Steps[list[T]]:
    """Do `work` for each item, one per step; the results."""
    results = []
    for item in items:
        results.append(work(item))
        yield
    return results


def finish(steps: Steps[T]) -> T:
    """Do all steps now, where the work is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
