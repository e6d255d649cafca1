"""Work that may be interrupted: generators that yield after each element. Pure.

:class:`barnabas_broker.slicer.Slicer` runs them a slice at a time, so that no request holds the event loop.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar

A = TypeVar("A")
K = TypeVar("K")
T = TypeVar("T")

#: Items that are put in order in one step.
_KEYS_PER_STEP: Final = 100
#: Names that are sorted in one step, in about 2 ms.
_SORTED_PER_STEP: Final = 5_000
#: Items that are freed in one step, in 0.1 ms.
_FREED_PER_STEP: Final = 1_000

#: Work that yields where it may be interrupted, and returns its result.
Steps = Generator[None, None, T]


def each(items: Iterable[A], work: Callable[[A], T]) -> Steps[list[T]]:
    """Do `work` for each item, one per step; the results."""
    results = []
    for item in items:
        results.append(work(item))
        yield
    return results


def by_key(items: Iterable[A], key: Callable[[A], K]) -> Steps[tuple[dict[K, A], set[K]]]:
    """The items by their keys, some per step, and the keys of more than one item; of these the last item is found."""
    found: dict[K, A] = {}
    repeated: set[K] = set()
    for number, item in enumerate(items, 1):
        at = key(item)
        if at in found:
            repeated.add(at)
        found[at] = item
        if not number % _KEYS_PER_STEP:
            yield
    return found, repeated


def distinct(items: Iterable[K]) -> Steps[Collection[K]]:
    """The items, each once, in the order in which they came first; some per step."""
    found, _ = yield from by_key(items, lambda item: item)
    return found


def consumed(items: list[T]) -> Iterator[T]:
    """Take the items out of a list, first to last: each is freed after its use, and not all of them at once."""
    items.reverse()
    while items:
        yield items.pop()


def release(items: dict[Any, Any] | set[Any] | list[Any]) -> Steps[None]:
    """Free all but the last items of a collection that is not used any more, some per step.

    A long collection is freed all at once when its last reference ends: in 10 ms for 100,000 objects.
    """
    remove: Callable[[], object] = items.popitem if isinstance(items, dict) else items.pop
    while len(items) > _FREED_PER_STEP:
        for _ in range(_FREED_PER_STEP):
            remove()
        yield


def in_order(names: Collection[str]) -> Steps[Iterator[str]]:
    """Names in ascending order: sorted some per step, and merged while they are read."""
    given = iter(names)
    sorted_parts = []
    while part := sorted(islice(given, _SORTED_PER_STEP)):
        sorted_parts.append(part)
        yield
    return merge(*sorted_parts)


def finish(steps: Steps[T]) -> T:
    """Do all steps now, where the work is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
