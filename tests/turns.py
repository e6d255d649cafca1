"""Measures the turns of the running event loop: a turn in which much is done lets all clients wait."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def watched() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the longest processor time of this thread for one turn, in seconds.

    A turn of asyncio's loop is one call. That of uvloop cannot be seen from outside: there a callback calls itself, and
    keeps the processor busy while the loop has nothing to do.
    """
    loop: Any = asyncio.get_running_loop()
    once: Callable[[], None] | None = getattr(loop, "_run_once", None)
    worst, last, ended = 0.0, time.thread_time(), False

    def turn() -> None:
        nonlocal worst
        assert once is not None
        began = time.thread_time()
        once()
        worst = max(worst, time.thread_time() - began)

    def between() -> None:
        nonlocal worst, last
        now = time.thread_time()
        worst, last = max(worst, now - last), now
        if not ended:
            loop.call_soon(between)

    if once is None:
        between()
    else:
        loop._run_once = turn
    try:
        yield lambda: worst
    finally:
        ended = True
        if once is not None:
            loop._run_once = once
