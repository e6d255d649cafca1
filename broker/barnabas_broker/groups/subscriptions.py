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
        (count,) = _INT32.unpack_from(subscription, 2)
        at = 6
        topics = []
        for _ in range(count):
            topic, at = _string(subscription, at)
            topics.append(topic)
        return topics
    except (struct_error, UnicodeError, ValueError):
        return None


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
