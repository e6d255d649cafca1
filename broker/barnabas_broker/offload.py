"""Runs what takes long in threads, so that it does not hold the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

#: Runs a function, perhaps in another thread, and passes its result or its exception on, in the loop's thread.
Offload = Callable[[Callable[[], Any], Callable[[Any], None]], None]


def at_once(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    """An :data:`Offload` that runs the function now."""
    try:
        result = work()
    except Exception as error:
        result = error
    done(result)


class Offloaded:
    """An :data:`Offload` with a thread of its own, which runs one function after the other.

    Args:
        stack: stops the thread when it is closed. What has not run then is dropped.
        name: of the thread.
    """

    def __init__(self, stack: AsyncExitStack, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, name)
        stack.callback(self._executor.shutdown, wait=False, cancel_futures=True)

    def __call__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        future = self._loop.run_in_executor(self._executor, work)

        def finished(of: "asyncio.Future[Any]") -> None:
            if not of.cancelled():
                done(of.exception() or of.result())

        future.add_done_callback(finished)
