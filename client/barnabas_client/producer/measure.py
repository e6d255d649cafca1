"""Checks the parts of a record that a program sends, and computes its size. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeGuard

from barnabas_client.checks import is_int64
from barnabas_client.errors import RecordTooLargeError

Headers = Sequence[tuple[str, bytes | None]]

#: The largest size of a record in bytes without its key, value and headers.
OVERHEAD: Final = 40


def record_size(what: str, key: object, value: object, headers: Iterable[Any] | None, limit: int) -> int:
    """The size of a record in bytes, at its longest.

    Raises:
        TypeError: key, value or a header is not bytes.
        ValueError: the name of a header cannot be encoded.
        RecordTooLargeError: it is larger than `limit`.
    """
    if not (value is None or type(value) is bytes or is_bytes(value)):
        raise TypeError(f"{what}: the value is {type(value).__name__}: give bytes, or set value_serializer")
    if not (key is None or type(key) is bytes or is_bytes(key)):
        raise TypeError(f"{what}: the key is {type(key).__name__}: give bytes, or set key_serializer")
    size = OVERHEAD + (0 if key is None else len(key)) + (0 if value is None else len(value))
    if headers:
        size += headers_size(what, headers)
    if size > limit:
        raise RecordTooLargeError(
            f"{what}: a record of {size} bytes is larger than max_request_size {limit}. To do: raise it, and the "
            "topic's max.message.bytes, or send less"
        )
    return size


def is_bytes(value: object) -> TypeGuard[bytes | bytearray | memoryview]:
    """Whether `len` is the size in bytes, which it is not for a view of larger items."""
    return isinstance(value, bytes | bytearray) or (isinstance(value, memoryview) and value.nbytes == len(value))


def check_timestamp(what: str, given: object) -> int:
    """Check the time of a record.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is negative, or does not fit into an int64.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{what}: timestamp_ms is {given!r}: give milliseconds since 1970")
    if not is_int64(given):
        raise ValueError(f"{what}: timestamp_ms is {given}: give milliseconds since 1970, at least 0")
    return given


def headers_size(what: str, headers: Iterable[Any]) -> int:
    """The size of headers in bytes, at their longest.

    Raises:
        TypeError: one of them is not a name with bytes.
        ValueError: a name cannot be encoded.
    """
    size = 0
    for header in headers:
        if not (
            isinstance(header, tuple | list)
            and len(header) == 2
            and isinstance(header[0], str)
            and (header[1] is None or is_bytes(header[1]))
        ):
            raise TypeError(f"{what}: {header!r} is not a header: give a name with bytes, such as ('name', b'x')")
        try:
            size += len(header[0].encode()) + 10 + len(header[1] or b"")
        except UnicodeEncodeError as error:
            raise ValueError(f"{what}: the header's name {header[0]!r} cannot be encoded: {error}") from error
    return size
