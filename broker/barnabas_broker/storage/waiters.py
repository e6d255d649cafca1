"""Futures that wait for an offset: for an fsync, for the high watermark, for the low watermark."""

import asyncio
from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import Final, Generic, TypeVar

from barnabas_protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

_offset_of: Final = itemgetter(0)


class OffsetWaiters(Generic[T]):
    """Futures in the order of the offsets that they wait for. Completing costs only what is completed.

    A caller may cancel its future at any time. Every partition has three of these, most of which nothing ever waits in:
    these take little memory.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        #: Offsets and futures; None until something waits.
        self._waiting: deque[tuple[int, asyncio.Future[T]]] | None = None

    def __len__(self) -> int:
        return 0 if self._waiting is None else len(self._waiting)

    def wait(self, offset: int) -> "asyncio.Future[T]":
        """A future that :meth:`complete` resolves once its mark reaches `offset`."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = deque()
        # Requests that time out again and again while the mark does not move must not pile up.
        while waiting and waiting[-1][1].done():
            waiting.pop()
        if not waiting or waiting[-1][0] <= offset:
            waiting.append((offset, future))
        else:
            waiting.insert(bisect_right(waiting, offset, key=_offset_of), (offset, future))
        return future

    def reached(self, mark: int) -> bool:
        """Whether a future waits for `mark` or less."""
        waiting = self._waiting
        return bool(waiting and waiting[0][0] <= mark)

    def complete(self, mark: int, result: T) -> None:
        """Resolve the futures that wait for `mark` or less."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= mark:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(result)

    def fail_after(self, mark: int, code: ErrorCode, message: str) -> None:
        """Fail the futures that wait for more than `mark`, each with a :class:`KafkaError`."""
        waiting = self._waiting
        while waiting and waiting[-1][0] > mark:
            _fail(waiting.pop()[1], code, message)

    def fail_all(self, code: ErrorCode, message: str) -> None:
        """Fail every future, each with a :class:`KafkaError`."""
        self.fail_after(-2, code, message)


def _fail(future: "asyncio.Future[T]", code: ErrorCode, message: str) -> None:
    if not future.done():
        future.set_exception(KafkaError(code, message))
