"""Subscriptions and assignments of members of the classic protocol: bytes of the embedded consumer protocol. Pure.

Its versions (:mod:`barnabas_protocol.consumer_protocol`) only add fields.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas_protocol.codec import decode, encode
from barnabas_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.subscriptions import read_names

_INT16: Final = Struct(">h")
#: The newest version that is known; a newer one is read and written as this one, as Kafka does.
_NEWEST: Final = 3
#: An empty array, which stands for topics that have been read.
_NO_TOPICS: Final = bytes(4)


class Subscription(NamedTuple):
    """Subscription of a member of the classic protocol.

    Attributes:
        topics: names of the topics.
        owned: the partitions that it owns, by topic.
        rack_id: its rack; None if it does not say so.
        user_data: what its assignor adds.
    """

    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None
    user_data: bytes


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment.

    Raises:
        ValueError: `data` is too short.
    """
    try:
        version = int(_INT16.unpack_from(data)[0])
    except struct_error as error:
        raise ValueError(f"{len(data)} bytes are no subscription or assignment") from error
    if version < 0:
        raise ValueError(f"version {version}")
    return min(version, _NEWEST)


def read_subscription(data: bytes) -> Subscription:
    """Read the subscription of a member.

    Raises:
        ValueError: it is malformed.
    """
    version = version_of(data)
    topics, end = read_names(data, 2)
    try:
        read = decode(ConsumerProtocolSubscription, version, _NO_TOPICS + data[end:], trailing=True)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    owned: dict[str, frozenset[int]] = {}
    for each in read.owned_partitions:
        owned[each.topic] = owned.get(each.topic, frozenset()).union(each.partitions)
    return Subscription(frozenset(topics), owned, read.rack_id or None, bytes(read.user_data or b""))


def read_assignment(data: bytes) -> tuple[dict[str, set[int]], bytes]:
    """Read the assignment that a leader has made: the partitions by topic, and the assignor's own data.

    Raises:
        ValueError: it is malformed.
    """
    if not data:
        return {}, b""
    try:
        read = decode(ConsumerProtocolAssignment, version_of(data), data[2:], trailing=True)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    partitions: dict[str, set[int]] = {}
    for each in read.assigned_partitions:
        partitions.setdefault(each.topic, set()).update(each.partitions)
    return partitions, bytes(read.user_data or b"")


def assignment_of(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment for a member, in the version of its subscription."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=sorted(numbers))
            for topic, numbers in sorted(partitions.items())
        ]
    )
    return _INT16.pack(version) + encode(message, version)
