"""The lane of long work: turns, and work that is cancelled."""

import asyncio
import gc
import weakref
from collections.abc import Generator

import pytest

from barnabas_broker.handlers.lane import Lane, Work, _response


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
            await _response(lane.enqueue(failing(frames.pop())))
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
