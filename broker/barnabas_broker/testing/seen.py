"""The last requests that a broker received, and waiting for one."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from barnabas_broker.metrics import ERROR_CODES
from barnabas_broker.testing.requests import SeenRequest
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.schema import Struct

#: Requests that are kept.
MOST_REQUESTS: Final = 2_000


class RequestLog:
    """The last requests, in the order of their arrival.

    Attributes:
        count: the number of the last request.
    """

    def __init__(self) -> None:
        self.count = 0
        self._seen: deque[SeenRequest] = deque(maxlen=MOST_REQUESTS)
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def add(self, request: SeenRequest) -> None:
        """Record a request that has arrived."""
        self.count += 1
        request.number = self.count
        self._seen.append(request)
        self.news()

    def answered(self, request: SeenRequest, seconds: float, error: str | None) -> None:
        """Record that a request was answered, or its connection closed."""
        request.seconds, request.error = seconds, error
        self.news()

    def after(self, number: int) -> list[SeenRequest]:
        """The requests after this number that are kept."""
        return [request for request in self._seen if request.number > number]

    def news(self) -> None:
        """Complete the waits whose condition holds now."""
        for future, happened in list(self._waiting.items()):
            if not future.done() and happened():
                future.set_result(None)

    async def wait(self, happened: Callable[[], bool], timeout: float) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: it did not hold in time.
        """
        if happened():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = happened
        try:
            async with asyncio.timeout(timeout):
                await future
        finally:
            del self._waiting[future]


def first_error(response: Struct) -> str | None:
    """The name of the first error code in a response; None if there is no error."""
    code = _first_code(response)
    if not code:
        return None
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _first_code(struct: Struct) -> int:
    own, arrays = _places(type(struct))
    if own is not None and (code := int(getattr(struct, own))):
        return code
    for name in arrays:
        for item in getattr(struct, name) or ():
            if code := _first_code(item):
                return code
    return 0


@cache
def _places(cls: type[Struct]) -> tuple[str | None, tuple[str, ...]]:
    """The field with the error code of a structure, None without one, and which of its arrays contain error codes."""
    arrays = []
    for field in cls.FIELDS:
        element = field.type.element
        if element is not None and element.struct is not None and any(_places(element.struct)):
            arrays.append(field.name)
    return next((field.name for field in cls.FIELDS if field.name in ERROR_CODES), None), tuple(arrays)


def group_of(request: Any) -> str | None:
    """The group that a request names, the first of several; None if it names none."""
    group = getattr(request, "group_id", None)
    if not group:
        groups = getattr(request, "groups", None)
        group = getattr(groups[0], "group_id", groups[0]) if groups else None
    return str(group) if group else None


def topics_of(request: Any, names: Mapping[bytes, str]) -> list[str]:
    """The topics that a request names.

    Args:
        request: of any API.
        names: the names of topics by their ids.
    """
    found = []
    for topic in getattr(request, "topics", None) or getattr(request, "topic_names", None) or ():
        if isinstance(topic, tuple):  # of a Produce request as the broker reads it
            topic = topic[0]
        if isinstance(topic, Struct):
            name = getattr(topic, "name", None) or getattr(topic, "topic", None)
            topic = name or getattr(topic, "topic_id", "")
        found.append(names.get(topic, topic.hex()) if isinstance(topic, bytes) else str(topic))
    return found
