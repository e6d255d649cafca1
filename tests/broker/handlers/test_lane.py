"""The lane of long work: turns, and work that is cancelled."""

from collections.abc import Generator

import pytest

from barnabas_broker.handlers.lane import Lane, Work


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
