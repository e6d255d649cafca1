"""Reading the events of a group again and again, and what happens when that fails."""

import asyncio
import json
from argparse import Namespace
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.console import histories
from barnabas.console.histories import GroupHistory, Histories
from barnabas_client.errors import KafkaConnectionError
from barnabas_client.history.sources import Advance, History, PolledHistory

NOON = 1_795_000_000_000


def event(kind: str, time: int, generation: int = 1, **more: Any) -> bytes:
    return json.dumps(
        {"version": 1, "group": "g", "time": NOON + time, "generation": generation, "type": kind, **more}
    ).encode()


class Script(History):
    """Events that are there, and events that follow; an exception is raised in its place."""

    no_requests = "None here."

    def __init__(self, there: list[bytes], coming: list[list[bytes] | Exception]) -> None:
        self._there, self._coming = there, coming
        self.size = len(there)

    async def read(self, advance: Advance) -> AsyncIterator[list[bytes]]:
        advance(len(self._there))
        yield self._there

    async def follow(self) -> AsyncIterator[list[bytes]]:
        while self._coming:
            step = self._coming.pop(0)
            if isinstance(step, Exception):
                raise step
            yield step
        await asyncio.Event().wait()


class Polled(Script, PolledHistory):
    """The same, which cannot be read again."""


class Clock:
    """A clock that a test moves; waiting moves it, too."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await _REAL_SLEEP(0)


_REAL_SLEEP = asyncio.sleep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("barnabas.console.histories.asyncio.sleep", clock.sleep)
    return clock


def start(monkeypatch: pytest.MonkeyPatch, clock: Clock, found: list[History | Exception]) -> GroupHistory:
    """Follow a group, whose sources are found one after the other."""

    async def find(*arguments: object, **options: object) -> History:
        step = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(step, Exception):
            raise step
        return step

    monkeypatch.setattr(histories, "find_history", find)
    admin: Any = None
    groups = Histories(Namespace(source=None, interval=1.0), admin, lambda: clock.now, lambda: NOON + round(clock.now))
    return groups.of("g", NOON)


async def until(true: Any) -> None:
    async with asyncio.timeout(5):
        while not true():
            await _REAL_SLEEP(0)


def source(history: GroupHistory) -> dict[str, Any]:
    made = history.chart()()["source"]
    assert isinstance(made, dict)
    return made


@pytest.mark.parametrize("error", [KafkaConnectionError("refused"), KeyError("unexpected")])
async def test_a_failure_is_shown_and_tried_again_with_a_back_off(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, error: Exception
) -> None:
    history = start(monkeypatch, clock, [error] * 4 + [Script([event("group_empty", 0)], [])])
    await history.settled(5)
    assert source(history)["error"] is not None
    await until(lambda: source(history)["loaded"])
    assert source(history)["error"] is None
    assert clock.waits == [0.5, 1.0, 2.0, 4.0]
    history.stop()


async def test_nothing_is_read_for_a_page_that_was_closed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    history = start(monkeypatch, clock, [KafkaConnectionError("refused")])
    await until(lambda: history.over)
    assert 60 < clock.now < 100
    assert max(clock.waits) <= 30


async def test_after_a_failure_everything_is_read_again(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    one, two = event("group_empty", 0), event("group_empty", 5, 2)
    first = Script([one], [[two], KafkaConnectionError("lost")])
    history = start(monkeypatch, clock, [first, Script([one, two], [])])
    await until(lambda: clock.waits and source(history)["error"] is None)
    assert list(history._events.values()) == [one, two]
    history.stop()


async def test_what_was_described_is_kept_and_a_failure_is_a_gap(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    one, two = event("group_empty", 0), event("group_empty", 5, 2)
    described = Polled([one], [KafkaConnectionError("lost"), KafkaConnectionError("lost"), [two]])
    history = start(monkeypatch, clock, [described])
    await until(lambda: two in history._events.values())
    made = history.chart()()
    assert [gap["gap"] for gap in made["gaps"]] == ["not_read"], "one gap for one outage"
    assert "lost" in made["gaps"][0]["text"]
    assert made["source"]["error"] is None
    assert clock.waits == [0.5, 1.0]
    history.stop()


async def test_a_storm_is_flapping_until_it_is_calm(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    started = [event("rebalance_started", number * 1_000, number, cause="member_joined", by=[]) for number in range(6)]
    history = start(monkeypatch, clock, [Script(started[:5], [[started[5]]])])
    await until(lambda: source(history)["loaded"])
    await until(lambda: history.is_flapping)
    assert history.generation == 5
    clock.now = 200_000.0
    assert not history.is_flapping
    history.stop()
