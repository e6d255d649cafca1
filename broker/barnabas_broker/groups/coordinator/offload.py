"""Computes target assignments in a thread, one at a time, so that those of large groups do not hold the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any


class Offloaded:
    """Runs functions in a thread of its own; an :data:`~barnabas_broker.groups.coordinator.hosting.Offload`.

    Args:
        stack: stops the thread when it is closed. What is still to be computed then is dropped.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, "assignor")
        stack.callback(self._executor.shutdown, wait=False, cancel_futures=True)

    def __call__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        future = self._loop.run_in_executor(self._executor, work)

        def finished(of: "asyncio.Future[Any]") -> None:
            if not of.cancelled():
                done(of.exception() or of.result())

        future.add_done_callback(finished)
