"""Time as a program gets it: for tests that bound how long something takes, on machines that may stall."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

_TICK: Final = 0.01


@asynccontextmanager
async def stopwatch() -> AsyncIterator[Callable[[], float]]:
    """Yield a function that returns the seconds since then, in which a stall of the machine counts as one tick.

    A task counts ticks of 10 ms. When the machine runs something else for three seconds, the loop gets one tick later:
    the code under test did not have these seconds either. A timeout that is too long is seen as on a clock.
    """
    ticks = 0

    async def count() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(_TICK)
            ticks += 1

    counting = asyncio.create_task(count())
    try:
        yield lambda: ticks * _TICK
    finally:
        counting.cancel()
        await asyncio.wait((counting,))
