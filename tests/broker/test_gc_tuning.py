"""The collector examines few objects at a time, and everything only when that is due."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import pytest

from barnabas_broker.gc_tuning import (
    LEAST_GROWTH,
    LEAST_GROWTH_BUSY,
    THRESHOLDS,
    Collector,
    bounded,
    collect_all,
    wanted,
)

BUSY = 1.0
#: Objects that one collection may examine: 100 ns each, in a slow case.
MOST_EXAMINED = 31_250
#: Objects of a broker that grows, in tuples of two.
HELD = 1_000_000


class Process:
    """Seconds of processor time, blocks in use, and how often everything was examined."""

    def __init__(self, blocks: int) -> None:
        self.used, self.collections = 0.0, 0
        self.blocks = blocks
        self.collector = Collector(lambda: self.used, lambda: self.blocks, self.collect)

    def collect(self) -> None:
        self.collections += 1

    def after(self, blocks: int, used: float) -> int:
        self.blocks += blocks
        self.used += used
        self.collector.check()
        return self.collections


def test_a_quiet_broker_that_has_grown_examines_everything_once() -> None:
    process = Process(blocks=1_000_000)
    assert process.after(LEAST_GROWTH - 1, 0) == 0
    assert process.after(1, 0) == 1
    assert process.after(LEAST_GROWTH - 1, 0) == 1


def test_a_large_broker_has_to_grow_by_a_quarter() -> None:
    process = Process(blocks=40_000_000)
    assert process.after(9_999_999, 0) == 0
    assert process.after(1, 0) == 1


def test_a_busy_broker_has_to_double() -> None:
    process = Process(blocks=1_000_000)
    assert process.after(LEAST_GROWTH_BUSY - 1, BUSY) == 0
    assert process.after(1, BUSY) == 1
    assert process.after(3_000_000 - 1, BUSY) == 1
    assert process.after(0, 0) == 2


def test_waiting_for_a_processor_is_not_being_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 3.0)
    monkeypatch.setattr(Path, "read_text", lambda path: "7000000000 2500000000 12\n")
    assert wanted() == 5.5
    monkeypatch.setattr(Path, "read_text", lambda path: "")
    assert wanted() == 3.0


@pytest.fixture
def largest() -> Iterator[list[int]]:
    """The largest number of objects that a collection had to examine, as the only element."""
    found = [0]

    def watch(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            examined = sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1))
            found[0] = max(found[0], examined)

    gc.callbacks.append(watch)
    yield found
    gc.callbacks.remove(watch)


async def test_a_collection_examines_what_is_new_however_much_there_is(largest: list[int]) -> None:
    held: list[list[object]] = []
    with bounded():
        assert gc.get_threshold() == THRESHOLDS
        for _ in range(HELD):
            held.append([held])
        assert 0 < largest[0] < MOST_EXAMINED
    held.clear()


async def test_after_a_full_collection_the_next_ones_examine_what_is_new_as_well(largest: list[int]) -> None:
    """CPython puts the oldest generation off until it has grown by a quarter of what the last collection left."""
    held: list[list[object]] = []
    with bounded():
        for _ in range(HELD):
            held.append([held])
        collect_all()
        largest[0] = 0
        for _ in range(HELD // 2):
            held.append([held])
        assert 0 < largest[0] < MOST_EXAMINED
    held.clear()


async def test_what_was_there_before_does_not_put_collections_off(largest: list[int]) -> None:
    before: list[list[object]] = [[] for _ in range(HELD)]
    gc.collect()
    held: list[list[object]] = []
    with bounded():
        largest[0] = 0
        for _ in range(HELD):
            held.append([held])
        assert 0 < largest[0] < MOST_EXAMINED
    held.clear()
    before.clear()


class Seen(list[object]):
    """A list that weak references may point to."""


async def test_a_cycle_of_permanent_objects_is_found_by_a_full_collection() -> None:
    cycle = Seen()
    cycle.append(cycle)
    alive = ref(cycle)
    with bounded():
        gc.collect()
        assert gc.get_objects(2) == []
        del cycle
        gc.collect()
        assert alive() is not None
        collect_all()
        assert alive() is None
        assert gc.get_objects(2) == []


async def test_the_collector_is_as_it_was_afterwards() -> None:
    before = gc.isenabled(), gc.get_threshold(), list(gc.callbacks)
    with bounded():
        pass
    assert (gc.isenabled(), gc.get_threshold(), list(gc.callbacks)) == before
