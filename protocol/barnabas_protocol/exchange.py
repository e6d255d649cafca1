"""Correlation ids for whoever sends requests, sans I/O: a response names the request it answers, and on one connection
responses come in the order of the requests (Kafka's protocol guide)."""

from collections import deque
from typing import Generic, TypeVar

from barnabas_protocol.codec import decode_correlation_id
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.wire import Buffer

T = TypeVar("T")


class Exchange(Generic[T]):
    """The requests in flight on one connection, oldest first, each with a token of the caller's."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting: deque[tuple[int, T]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def sent(self, token: T) -> int:
        """Take the correlation id for a request that is about to be sent; `token` comes back with its answer."""
        correlation_id, self._next = self._next, (self._next + 1) & 0x7FFFFFFF
        self._waiting.append((correlation_id, token))
        return correlation_id

    def answered(self, frame: Buffer) -> T:
        """The token of the request that `frame` answers.

        Raises:
            DecodeError: the frame answers nothing that was asked, or not what is next. The connection is of no more
                use.
        """
        correlation_id = decode_correlation_id(frame)
        if not self._waiting:
            raise DecodeError(f"response {correlation_id} to no request")
        expected, token = self._waiting[0]
        if expected != correlation_id:
            raise DecodeError(f"response {correlation_id} where {expected} is next")
        self._waiting.popleft()
        return token

    def abandon(self) -> list[T]:
        """The tokens that will never be answered, because the connection is gone."""
        tokens = [token for _, token in self._waiting]
        self._waiting.clear()
        return tokens
