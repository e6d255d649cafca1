"""Matches responses with requests: by correlation id, and on one connection in the order of the requests."""

from collections import deque
from typing import Generic, TypeVar

from barnabas_protocol.codec import decode_correlation_id
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.wire import Buffer

T = TypeVar("T")


class Exchange(Generic[T]):
    """The requests in flight on one connection, oldest first, each with a token of the caller."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting: deque[tuple[int, T]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def sent(self, token: T) -> int:
        """Add a request that is about to be sent. Returns its correlation id; its response returns `token`."""
        correlation_id, self._next = self._next, (self._next + 1) & 0x7FFFFFFF
        self._waiting.append((correlation_id, token))
        return correlation_id

    def answered(self, frame: Buffer) -> T:
        """Remove the request that a response frame answers, and return its token.

        Raises:
            DecodeError: the response answers no request, or not the oldest one. Close the connection.
        """
        correlation_id = decode_correlation_id(frame)
        if not self._waiting:
            raise DecodeError(f"response {correlation_id}, but no request is in flight")
        expected, token = self._waiting[0]
        if expected != correlation_id:
            raise DecodeError(f"response {correlation_id}, but the oldest request in flight is {expected}")
        self._waiting.popleft()
        return token

    def abandon(self) -> list[T]:
        """Remove all requests, because the connection is closed, and return their tokens."""
        tokens = [token for _, token in self._waiting]
        self._waiting.clear()
        return tokens
