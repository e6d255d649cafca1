"""Subscriptions and assignments of protocol type "consumer", as far as the coordinator reads them. Pure.

Every version of Kafka's consumer protocol starts with the fields of version 0, and the coordinator needs no others.
Source: ``ConsumerProtocol``, ``ClassicGroup.computeSubscribedTopics``.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error
from typing import Final

#: The protocol type of consumers.
CONSUMER: Final = "consumer"

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


def read_topics(subscription: bytes) -> list[str] | None:
    """The topics of a subscription; None if the bytes are not a subscription."""
    try:
        return read_names(subscription, 2)[0]
    except ValueError:
        return None


def read_names(data: bytes, at: int) -> tuple[list[str], int]:
    """An array of strings, and where it ends. There may be tens of thousands of them.

    Args:
        data: has the array.
        at: where it begins.

    Raises:
        ValueError: it is malformed.
    """
    end = len(data)
    if at + 4 > end:
        raise ValueError(f"array at {at} of {end} bytes")
    (count,) = _INT32.unpack_from(data, at)
    at += 4
    if not 0 <= count <= (end - at) // 2:
        raise ValueError(f"array of {count} strings in {end - at} bytes")
    names = []
    for _ in range(count):
        start = at + 2
        if start > end:
            raise ValueError(f"string at {at} of {end} bytes")
        at = start + (data[at] << 8 | data[at + 1])
        if at > end:
            raise ValueError(f"string of {at - start} bytes at {start}, but only {end - start} bytes follow")
        names.append(data[start:at].decode())
    return names, at


def read_assignment(assignment: bytes) -> dict[str, list[int]] | None:
    """The partitions of an assignment by topic: {} if it is empty, None if the bytes are not an assignment."""
    if not assignment:
        return {}
    try:
        (count,) = _INT32.unpack_from(assignment, 2)
        at = 6
        topics: dict[str, list[int]] = {}
        for _ in range(count):
            topic, at = _string(assignment, at)
            (partitions,) = _INT32.unpack_from(assignment, at)
            at += 4
            if partitions < 0 or partitions * 4 > len(assignment) - at:
                return None
            unpacked = Struct(f">{partitions}i").unpack_from(assignment, at)
            topics.setdefault(topic, []).extend(unpacked)
            at += partitions * 4
        return topics
    except (struct_error, UnicodeError, ValueError):
        return None


def subscribed_topics(protocol_type: str | None, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of `subscriptions`; None if the protocol type is not "consumer" or one of them cannot be read."""
    if protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for subscription in subscriptions:
        read = read_topics(subscription)
        if read is None:
            return None
        topics.update(read)
    return frozenset(topics)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError(f"string of {size} bytes at {at}, but only {len(data) - at - 2} bytes follow")
    return str(data[at + 2 : end], "utf-8"), end
