"""Which partitions of ``__consumer_offsets`` the coordinator loads and unloads, and the timers behind that."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.support import Service


class FakeLeaderships:
    """The partitions that a broker leads, set by the test."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.in_creation = False

    def led(self, topic: str) -> Mapping[int, int]:
        assert topic == "__consumer_offsets"
        return self.epochs

    def creating(self, topic: str) -> bool:
        assert topic == "__consumer_offsets"
        return self.in_creation


class Case:
    """A coordinator of four partitions, what its broker leads, and what keeps the two in step.

    Attributes:
        timers: every timer that was set on the loop.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.service = Service(offsets_topic_num_partitions="4")
        self.leaderships = FakeLeaderships()
        self.serving = True
        self.partitions = CoordinatorPartitions(
            "__consumer_offsets", self.service.groups, self.leaderships, lambda: self.serving
        )
        self.timers: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def recorded(delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
            self.timers.append(call_later(delay, callback, *args))
            return self.timers[-1]

        monkeypatch.setattr(loop, "call_later", recorded)

    async def loaded(self) -> frozenset[int]:
        """The coordinator's partitions, once the loads that were started are over."""
        await asyncio.gather(*self.partitions.loading, return_exceptions=True)
        return self.service.groups.loaded

    def active(self) -> list[float]:
        """Seconds until each timer that was neither cancelled nor called."""
        now = asyncio.get_running_loop().time()
        return [round(timer.when() - now, 1) for timer in self.timers if not timer.cancelled()]


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


async def test_led_partitions_are_loaded_and_others_unloaded(case: Case) -> None:
    case.leaderships.epochs = {0: 1, 2: 1}
    case.partitions.reconcile()
    assert await case.loaded() == {0, 2}
    case.leaderships.epochs = {2: 1, 3: 5}
    case.partitions.reconcile()
    assert await case.loaded() == {2, 3}
    case.partitions.close()


async def test_an_unchanged_leadership_is_loaded_once_and_a_newer_epoch_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[int, int]] = []
    load = case.service.groups.load

    async def recorded(partition: int, leader_epoch: int) -> None:
        started.append((partition, leader_epoch))
        await load(partition, leader_epoch)

    monkeypatch.setattr(case.service.groups, "load", recorded)
    case.leaderships.epochs = {1: 4}
    case.partitions.reconcile()
    case.partitions.reconcile()
    assert await case.loaded() == {1}
    case.partitions.reconcile()
    assert await case.loaded() == {1}
    case.leaderships.epochs = {1: 5}
    case.partitions.reconcile()
    assert await case.loaded() == {1}
    assert started == [(1, 4), (1, 5)]
    case.partitions.close()


async def test_a_broker_that_may_not_serve_coordinates_no_group(case: Case) -> None:
    case.leaderships.epochs = dict.fromkeys(range(4), 1)
    case.partitions.reconcile()
    assert await case.loaded() == {0, 1, 2, 3}
    case.serving = False
    case.partitions.reconcile()
    assert await case.loaded() == set()
    assert case.service.heartbeat("m", 1) == ErrorCode.NOT_COORDINATOR
    case.partitions.close()


async def test_a_load_that_failed_is_tried_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(partition: int) -> int:
        raise OSError("disk")

    case.leaderships.epochs = {0: 1}
    with monkeypatch.context() as patched:
        patched.setattr(case.service.log, "start_offset", unreadable)
        case.partitions.reconcile()
        assert await case.loaded() == set()
    case.partitions.reconcile()  # Notices the failure,
    case.partitions.reconcile()  # and starts another load.
    assert await case.loaded() == {0}
    case.partitions.close()


async def test_while_partitions_are_being_created_there_is_one_timer(case: Case) -> None:
    case.leaderships.in_creation = True
    for _ in range(10):
        case.partitions.reconcile()
    assert len(case.active()) == 1
    case.leaderships.in_creation = False
    case.partitions.reconcile()
    assert case.active() == []
    case.partitions.close()


async def test_close_cancels_every_timer_and_every_unfinished_load(case: Case) -> None:
    case.leaderships.epochs = {0: 1}
    case.leaderships.in_creation = True
    case.partitions.start()
    loads = case.partitions.loading
    assert len(loads) == 1
    assert len(case.active()) == 2
    case.partitions.close()
    assert case.active() == []
    await asyncio.wait(loads)
    assert all(load.cancelled() for load in loads)


async def test_nothing_is_loaded_and_no_timer_is_set_after_close(case: Case) -> None:
    case.partitions.close()
    case.leaderships.epochs = {0: 1}
    case.leaderships.in_creation = True
    case.partitions.reconcile()
    case.partitions.start()
    assert case.active() == []
    assert case.partitions.loading == []
