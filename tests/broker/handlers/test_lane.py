"""The lane of long work: turns, and work that is cancelled."""

import asyncio
import gc
import weakref
from collections.abc import Generator

import pytest

from barnabas_broker.handlers.lane import SLICE, Lane, Work, _response
from barnabas_broker.server.connection import Peer


def test_work_of_one_step_reads_no_clock() -> None:
    def now() -> float:
        raise AssertionError("the clock is read")

    def work(result: int) -> Generator[None, None, int]:
        yield from ()
        return result

    assert Lane(now).run(work(7)) == 7


async def test_work_goes_on_at_once_until_its_slice_is_over() -> None:
    time, done = 0.0, 0

    def work() -> Generator[None, None, int]:
        nonlocal time, done
        for _ in range(20):
            done += 1
            time += SLICE / 4
            yield
        return done

    lane = Lane(lambda: time)
    running = lane.run(work())
    assert isinstance(running, Work)
    assert done == 5, "the first step, and those of a slice"
    assert await running == 20


@pytest.mark.parametrize("fails", [False, True])
async def test_work_that_is_cancelled_by_its_own_step_stops_no_other(fails: bool) -> None:
    lane = Lane(lambda: 0.0)
    work: list[Work[int]] = []

    def first() -> Generator[None, None, int]:
        yield from ()
        work[0].cancel()
        if fails:
            raise ValueError("a bug")
        return 1

    def second() -> Generator[None, None, int]:
        yield
        return 2

    work.append(lane.enqueue(first()))
    assert await lane.enqueue(second()) == 2
    assert work[0].cancelled()


class Frame(bytearray):
    """The frame of a request, which a reference can watch."""


async def test_what_a_failed_request_holds_is_freed_at_once() -> None:
    """Not when the collector runs: it may be a batch of a megabyte."""
    lane = Lane(lambda: 0.0)
    frames = [Frame(7)]
    gone = weakref.ref(frames[0])

    def failing(frame: Frame) -> Generator[None, None, None]:
        yield
        raise ValueError(len(frame))

    async def request() -> str:
        try:
            await _response(lane.enqueue(failing(frames.pop())), Peer("127.0.0.1", 1))
        except ValueError as error:
            return str(error)
        return "no error"

    gc.disable()
    try:
        assert await request() == "7"
        await asyncio.sleep(0)  # the loop is done with the future
        assert gone() is None
    finally:
        gc.enable()
