"""A look at the brokers whose answer is good for some time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

#: The share of time that looks may take: a look at a large cluster is repeated less often.
_SHARE: Final = 0.25


class Look:
    """Asks the brokers again when the last answer is too old. Any number of requests costs no more than one.

    Args:
        ask: asks them.
        seconds: for how long an answer is good enough.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, ask: Callable[[], Awaitable[dict[str, Any]]], seconds: float, now: Callable[[], float]) -> None:
        self._ask, self._seconds, self._now = ask, seconds, now
        self._answer: dict[str, Any] = {}
        self._good_until = -1.0
        self._asking: asyncio.Task[None] | None = None

    async def get(self) -> dict[str, Any]:
        """The answer.

        Raises:
            KafkaError: the brokers do not answer.
        """
        if self._now() >= self._good_until:
            if self._asking is None:
                self._asking = asyncio.get_running_loop().create_task(self._renew())
                self._asking.add_done_callback(self._asked)
            await asyncio.shield(self._asking)
        return self._answer

    def stop(self) -> None:
        """Do not wait for the brokers any more."""
        if self._asking is not None:
            self._asking.cancel()

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # a request that waited for it has it

    async def _renew(self) -> None:
        began = self._now()
        self._answer = await self._ask()
        took = self._now() - began
        self._good_until = self._now() + max(self._seconds, took / _SHARE - took)
