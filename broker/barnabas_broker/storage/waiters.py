"""Futures that wait for an offset: for an fsync, for the high watermark, for the low watermark."""

import asyncio
from bisect import bisect_right
from collections import deque
from typing import Generic, TypeVar

from barnabas_protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")


class OffsetWaiters(Generic[T]):
    """Futures in the order of the offsets that they wait for. Completing costs only what is completed.

    A caller may cancel its future at any time.
    """

    __slots__ = ("_futures", "_offsets")

    def __init__(self) -> None:
        self._offsets: deque[int] = deque()
        self._futures: deque[asyncio.Future[T]] = deque()

    def __len__(self) -> int:
        return len(self._offsets)

    def wait(self, offset: int) -> "asyncio.Future[T]":
        """A future that :meth:`complete` resolves once its mark reaches `offset`."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Requests that time out again and again while the mark does not move must not pile up.
        while self._futures and self._futures[-1].done():
            self._futures.pop()
            self._offsets.pop()
        if not self._offsets or self._offsets[-1] <= offset:
            self._offsets.append(offset)
            self._futures.append(future)
        else:
            at = bisect_right(self._offsets, offset)
            self._offsets.insert(at, offset)
            self._futures.insert(at, future)
        return future

    def reached(self, mark: int) -> bool:
        """Whether a future waits for `mark` or less."""
        return bool(self._offsets) and self._offsets[0] <= mark

    def complete(self, mark: int, result: T) -> None:
        """Resolve the futures that wait for `mark` or less."""
        while self._offsets and self._offsets[0] <= mark:
            self._offsets.popleft()
            future = self._futures.popleft()
            if not future.done():
                future.set_result(result)

    def fail(self, mark: int, code: ErrorCode, message: str) -> None:
        """Fail the futures that wait for `mark` or less, each with a :class:`KafkaError`."""
        while self._offsets and self._offsets[0] <= mark:
            self._offsets.popleft()
            _fail(self._futures.popleft(), code, message)

    def fail_after(self, mark: int, code: ErrorCode, message: str) -> None:
        """Fail the futures that wait for more than `mark`, each with a :class:`KafkaError`."""
        while self._offsets and self._offsets[-1] > mark:
            self._offsets.pop()
            _fail(self._futures.pop(), code, message)

    def fail_all(self, code: ErrorCode, message: str) -> None:
        """Fail every future, each with a :class:`KafkaError`."""
        self.fail_after(-2, code, message)


def _fail(future: "asyncio.Future[T]", code: ErrorCode, message: str) -> None:
    if not future.done():
        future.set_exception(KafkaError(code, message))
